#!/bin/sh
# install.sh server|plugin: install what "make build" built, and register it
# with Claude Code, as a server for all projects of the user or as a plugin;
# never both. Running it again changes nothing that is right already.
#
# PREFIX is where to (~/.local): the programs go to $PREFIX/lib/jobd, and one
# link to jobd to $PREFIX/bin. CLAUDE names Claude Code's program.
set -eu

cd "$(dirname "$0")/.."
. scripts/registration.sh

# The programs replace others that may run: a new file under the old name
# leaves the running ones theirs.
mkdir -p "$lib" "$prefix/bin"
for name in jobd-shim jobd mcp-stdio; do
	cp "bin/$name" "$lib/.$name.new"
	chmod 755 "$lib/.$name.new"
	mv -f "$lib/.$name.new" "$lib/$name"
done
if [ -e "$prefix/bin/jobd" ] || [ -L "$prefix/bin/jobd" ]; then
	[ "$(readlink "$prefix/bin/jobd")" = "$lib/jobd" ] ||
		fail "$prefix/bin/jobd is another program or link; remove it, or choose another PREFIX"
else
	ln -s "$lib/jobd" "$prefix/bin/jobd"
fi
say "installed $lib/{mcp-stdio,jobd,jobd-shim} and the link $prefix/bin/jobd"

case ${1:-} in
server)
	if [ -z "$claude" ]; then
		say "there is no claude on PATH; once it is, run:"
		say "  claude mcp add -s user jobd -- '$lib/mcp-stdio'"
	else
		unregister_plugin
		register_server
	fi
	;;
plugin)
	[ "$lib" = "$HOME/.local/lib/jobd" ] ||
		fail "the plugin starts ~/.local/lib/jobd/mcp-stdio, so PREFIX must be ~/.local; 'make install' takes any"
	lay_out_plugin
	if [ -z "$claude" ]; then
		say "there is no claude on PATH; once it is, run:"
		say "  claude plugin install jobd --marketplace '$lib/plugin'"
	else
		unregister_server
		register_plugin
	fi
	;;
*) fail "usage: install.sh server|plugin" ;;
esac

"$lib/jobd" doctor

# A daemon that runs is replaced by the new one; its jobs go on.
case $("$lib/jobd" version) in
*"
daemon "*) "$lib/jobd" restart ;;
esac
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) say "note: $prefix/bin is not on your PATH, so the command jobd is not found yet" ;;
esac
