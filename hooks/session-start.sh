#!/bin/sh
# session-start.sh: what the plugin's SessionStart hook runs. It hands over to
# "jobd hook session-start"; where the programs are missing it says in one line
# how to install them. It never fails, for that would disturb the session.
jobd="${HOME:-}/.local/lib/jobd/jobd"
if [ -x "$jobd" ]; then
	exec "$jobd" hook session-start
fi
printf '%s\n' '{"systemMessage": "jobd: its programs are not installed, so its tools are missing. In a checkout of jobd run: make install-plugin"}'
