#!/bin/sh
# Writes a job file of the user's with a tool that nothing has offered before.
set -eu
file=$JOBD_HOME/jobs/triggered.yaml
mkdir -p "$JOBD_HOME/jobs"
printf 'jobs:\n  triggered:\n    description: Added by job %s.\n    argv: ["true"]\n' "$JOBD_JOB_ID" >"$file.new"
mv "$file.new" "$file"
echo "the list of tools has changed"
