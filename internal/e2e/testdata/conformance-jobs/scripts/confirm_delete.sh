#!/bin/sh
set -eu
jobd ask "Delete $1?" --field 'confirm:boolean,title=Delete it?' >/dev/null
echo "deleted $1"
