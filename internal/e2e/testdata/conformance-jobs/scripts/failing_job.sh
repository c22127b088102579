#!/bin/sh
sleep 1
echo "this job fails, as it is meant to" >&2
exit 1
