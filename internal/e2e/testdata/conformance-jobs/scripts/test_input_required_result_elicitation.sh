#!/bin/sh
set -eu
name=$(jobd ask "What is your name?" --key user_name --field name:string --raw)
echo "Hello, $name!"
