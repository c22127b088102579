#!/bin/sh
# The suite compares the whole text, so the result is set as a CallToolResult.
# JOBD_ARGS is {"name":"…"}: its value is a JSON string already.
set -eu
name=${JOBD_ARGS#'{"name":"'}
jobd result --mcp "{\"content\":[{\"type\":\"text\",\"text\":\"Hello, ${name%'"}'}!\"}]}"
