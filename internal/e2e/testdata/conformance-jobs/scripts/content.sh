#!/bin/sh
# content.sh BLOCK…: answers with a whole CallToolResult of such content blocks.
set -eu
png=iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==
wav=UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==
blocks=
for block; do
	case $block in
	text) json='{"type":"text","text":"This is a simple text response for testing."}' ;;
	image) json='{"type":"image","data":"'$png'","mimeType":"image/png"}' ;;
	audio) json='{"type":"audio","data":"'$wav'","mimeType":"audio/wav"}' ;;
	resource) json='{"type":"resource","resource":{"uri":"test://embedded-resource","mimeType":"text/plain","text":"This is an embedded resource content."}}' ;;
	esac
	blocks=$blocks${blocks:+,}$json
done
jobd result --mcp "{\"content\":[$blocks]}"
