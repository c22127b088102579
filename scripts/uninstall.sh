#!/bin/sh
# uninstall.sh: take back what install.sh did, and nothing else. Jobs and their
# output stay, and what runs goes on, unless PURGE=1: that ends every job and
# removes the state directory.
set -eu

cd "$(dirname "$0")/.."
. scripts/registration.sh

if [ -n "$claude" ]; then
	unregister_server
	unregister_plugin
fi
if [ -x "$lib/jobd" ]; then
	if [ "${PURGE:-}" = 1 ]; then
		"$lib/jobd" stop --kill-jobs
	else
		"$lib/jobd" stop
	fi
fi
if [ "$(readlink "$prefix/bin/jobd" 2>/dev/null)" = "$lib/jobd" ]; then
	rm -f "$prefix/bin/jobd"
fi
for name in mcp-stdio jobd jobd-shim .mcp-stdio.new .jobd.new .jobd-shim.new; do
	rm -f "$lib/$name"
done
rm -rf "$lib/plugin"
if [ -d "$lib" ]; then
	rmdir "$lib" 2>/dev/null || say "left $lib, which holds files that are not jobd's"
fi
state=${JOBD_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/jobd}
if [ "${PURGE:-}" = 1 ]; then
	rm -rf "$state"
	say "removed $state"
elif [ -d "$state" ]; then
	say "left the jobs in $state; PURGE=1 removes them"
fi
say "jobd is uninstalled"
