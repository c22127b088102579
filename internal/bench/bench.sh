#!/usr/bin/env bash
# bench.sh: install what jobd is compared with, and measure into
# docs/benchmarks.md. Called by "make bench", which has built bin/.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=${JOBD_TOOLS:-$PWD/.tools}
node_server=@modelcontextprotocol/server@2.4.0

missing=()
command -v tsp >/dev/null || missing+=(task-spooler)
command -v nq >/dev/null || missing+=(nq)
if [ ${#missing[@]} -gt 0 ]; then
	echo "installing ${missing[*]} by apt-get, to compare jobd with" >&2
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
fi
node=$tools/bench
mkdir -p "$node"
if [ "$(cat "$node/.installed" 2>/dev/null)" != "$node_server" ]; then
	echo "installing $node_server into $node" >&2
	npm install --prefix "$node" --no-fund --no-audit --no-package-lock "$node_server"
	echo "$node_server" >"$node/.installed"
fi
cp internal/bench/node/server.mjs "$node/server.mjs"

# BENCH_DIR is where to measure. For minutes after many files were deleted, ext4
# looks long for a place for each new one near by, and not all that is compared
# makes as many: nothing is deleted before the end, and where others have just
# done so a file system of its own is better.
base=$(mktemp -d "${BENCH_DIR:-/tmp}/bench-XXXXXX")
trap 'rm -rf "$base"' EXIT

# Nothing of the surroundings decides what is measured.
unset JOBD_HOME JOBD_JOB_ID JOBD_SOCKET XDG_STATE_HOME XDG_CONFIG_HOME
JOBD_BASE=$base JOBD_BIN=$PWD/bin BENCH_NODE=$node/server.mjs BENCH_NODE_SERVER=$node_server \
	"${GO:-go}" test -tags bench -count=1 -timeout 30m -v ./internal/bench -page ../../docs/benchmarks.md "$@"
