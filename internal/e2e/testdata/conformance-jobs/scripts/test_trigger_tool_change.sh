#!/bin/sh
# Adds a job file of the user's with one more tool, or removes it again.
set -eu
file=$JOBD_HOME/jobs/triggered.yaml
if ! rm "$file" 2>/dev/null; then
	mkdir -p "$JOBD_HOME/jobs"
	printf 'jobs:\n  triggered:\n    description: A tool that was not there before.\n    argv: ["true"]\n' >"$file.new"
	mv "$file.new" "$file"
fi
echo "the list of tools has changed"
