#!/bin/sh
set -eu
got=$(sh "$(dirname "$0")/greet.sh" you)
[ "$got" = "hello you" ] || { echo "greet.sh printed \"$got\"" >&2; exit 1; }
echo "1 test passed"
