#!/bin/sh
set -eu
jobd progress "computing $2"
sleep "$1"
echo "$2: computed for $1 seconds"
