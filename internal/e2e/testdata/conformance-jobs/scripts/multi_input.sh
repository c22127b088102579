#!/bin/sh
# Both questions are open at the same time; the answers may come in any order.
set -eu
jobd ask "Who is first?" --field name:string --field confirm:boolean >/dev/null &
first=$!
jobd ask "Who is second?" --field name:string --field confirm:boolean >/dev/null &
second=$!
wait "$first"
wait "$second"
echo "both questions are answered"
