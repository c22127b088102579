#!/usr/bin/env bash
# bare.sh COMMAND [ARG...]: run a command as on a machine with nothing but git,
# make and Go on top of a bare system: no variable is set, HOME is an empty
# folder, and on PATH are git, make, go, the shells, the coreutils and setsid
# (util-linux), all of which every Debian has, and nothing else: no Claude Code,
# no Node, no grep, sed or awk. What Go has downloaded and built is used again.
#
# HOME is removed afterwards, or is $BARE_HOME and stays.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: bare.sh COMMAND [ARG...]" >&2; exit 2; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/home"
for program in git make go sh bash setsid; do
	ln -s "$(command -v $program)" "$dir/bin/$program"
done
# The real go, where the one on PATH is a link that finds its root by its place.
ln -sf "$(go env GOROOT)/bin/go" "$dir/bin/go"
while read -r program; do
	case $program in
	/bin/* | /usr/bin/*) ln -sf "$program" "$dir/bin/" ;;
	esac
done < <(dpkg -L coreutils)

environment=(HOME="${BARE_HOME:-$dir/home}" PATH="$dir/bin" TMPDIR=/tmp GOTOOLCHAIN=local)
for name in GOMODCACHE GOCACHE GOPROXY GOSUMDB GONOSUMDB GOFLAGS; do
	environment+=("$name=$(go env $name)")
done
env -i "${environment[@]}" "$@"
