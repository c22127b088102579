#!/usr/bin/env bash
# fuzz.sh TIME: run every fuzz target of the module for TIME. "go test -fuzz"
# takes one target at a time; as many as there are processors run side by side,
# each with one worker. What a target finds stays in its testdata/fuzz, to be
# committed with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${1:?usage: fuzz.sh TIME, e.g. 10s}

fuzz() {
	local file=${1%%:*} target=${1##*:func } log try
	log=$(mktemp)
	# A run that is cut off at its end in the middle of an input fails with
	# "context deadline exceeded" and has found nothing: once more.
	for try in 1 2; do
		if go test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -parallel 1 "./$(dirname "$file")" >"$log" 2>&1; then
			printf '== %-38s %s\n' "$target" "$(grep 'execs:' "$log" | tail -n 1 | sed 's/.*execs: /execs: /')"
			rm -f "$log"
			return
		fi
		grep -q 'context deadline exceeded' "$log" || break
	done
	printf '== %s in %s failed\n' "$target" "$(dirname "$file")"
	cat "$log"
	rm -f "$log"
	exit 255 # xargs starts no further one
}
export -f fuzz

targets=$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd internal | sort)
[ -n "$targets" ] || { echo "there is no fuzz target" >&2; exit 1; }
xargs -d '\n' -P "$(nproc)" -I '{}' bash -c 'fuzz "$1"' fuzz '{}' <<<"$targets"
