# registration.sh: what install.sh and uninstall.sh share: where things lie,
# and how Claude Code is told of them. To be sourced.

say() { printf 'jobd: %s\n' "$*"; }
fail() {
	printf 'jobd: %s\n' "$*" >&2
	exit 1
}

prefix=${PREFIX:-$HOME/.local}
case $prefix in
/*) ;;
*) fail "PREFIX is '$prefix'; it must be an absolute path" ;;
esac
lib=$prefix/lib/jobd
claude=${CLAUDE:-$(command -v claude || true)}

# in_claude ARG...: run claude away from any project, so that no entry of a
# project is taken for the user's.
in_claude() { (cd / && "$claude" "$@"); }

# registered_command: the command of the user's server "jobd", if any.
registered_command() {
	in_claude mcp get jobd 2>/dev/null | awk '
		/^  Scope: User config/ { user = 1 }
		user && sub(/^  Command: /, "") { print; exit }'
}

register_server() {
	old=$(registered_command)
	if [ "$old" = "$lib/mcp-stdio" ]; then
		say "Claude Code has the server jobd already"
		return
	fi
	# Another command is an installation under another prefix, now replaced.
	[ -z "$old" ] || in_claude mcp remove -s user jobd >/dev/null
	in_claude mcp add -s user jobd -- "$lib/mcp-stdio" >/dev/null
	say "told Claude Code of the server jobd, for all projects"
}

# unregister_server: remove the user's server "jobd" if it is this one.
unregister_server() {
	[ "$(registered_command)" = "$lib/mcp-stdio" ] || return 0
	in_claude mcp remove -s user jobd >/dev/null
	say "removed the server jobd from Claude Code"
}

# The plugin lies beside the programs, not in the checkout: Claude Code runs it
# from where it was installed from.
lay_out_plugin() {
	rm -rf "$lib/plugin"
	mkdir -p "$lib/plugin"
	for part in .claude-plugin hooks skills commands README.md LICENSE; do
		[ ! -e "$part" ] || cp -R "$part" "$lib/plugin/"
	done
}

plugin_is_installed() { in_claude plugin list --json 2>/dev/null | grep -q '"id": "jobd@jobd"'; }

register_plugin() {
	if plugin_is_installed; then
		in_claude plugin update jobd@jobd >/dev/null
		say "Claude Code has the plugin jobd already"
		return
	fi
	in_claude plugin install jobd --marketplace "$lib/plugin" >/dev/null
	say "told Claude Code of the plugin jobd"
}

unregister_plugin() {
	plugin_is_installed || return 0
	in_claude plugin uninstall jobd@jobd --keep-data >/dev/null
	in_claude plugin marketplace remove jobd >/dev/null 2>&1 || true
	say "removed the plugin jobd from Claude Code"
}
