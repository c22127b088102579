#!/bin/sh
# The suite looks for the name in the first block of the content, where a plain
# result has jobd's summary. JOBD_ARGS is {"name":"…"}: its value is a JSON
# string already.
set -eu
sleep 1
name=${JOBD_ARGS#'{"name":"'}
jobd result --mcp "{\"content\":[{\"type\":\"text\",\"text\":\"Hello, ${name%'"}'}, from the background\"}]}"
