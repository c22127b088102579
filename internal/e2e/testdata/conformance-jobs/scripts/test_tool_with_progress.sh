#!/bin/sh
# A client is told of progress at most once a second.
set -eu
for done in 0 50 100; do
	jobd progress "$done/100"
	sleep 1.2
done
echo "all of it is done"
