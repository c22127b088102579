#!/usr/bin/env bash
# fuzz.sh TIME: run every fuzz target of the module for TIME, one after the
# other, for "go test -fuzz" takes one at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: fuzz.sh TIME, e.g. 10s}

found=0
while IFS=: read -r file target; do
	found=$((found + 1))
	echo "== $target in $(dirname "$file")"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")"
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd internal | sed 's/:func /:/' | sort)
[ "$found" -gt 0 ] || { echo "there is no fuzz target" >&2; exit 1; }
