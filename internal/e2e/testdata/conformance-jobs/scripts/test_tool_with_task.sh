#!/bin/sh
set -eu
sleep 1
echo "Hello, $1, from the background"
