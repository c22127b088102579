#!/bin/sh
# ask.sh MESSAGE FIELD…: asks one question after the other.
set -eu
while [ $# -gt 0 ]; do
	jobd ask "$1" --field "$2" >/dev/null
	shift 2
done
echo "state-ok: everything is answered"
