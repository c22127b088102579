#!/bin/sh
set -eu
jobd result --protocol-error "this job raises a protocol error, as it is meant to" --code -32000
