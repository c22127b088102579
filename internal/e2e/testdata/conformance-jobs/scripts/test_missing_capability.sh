#!/bin/sh
# What a job that cannot do without sampling would say: no job can sample.
set -eu
jobd result --protocol-error "this job needs the capability sampling" --code -32021 --data '{"requiredCapabilities":{"sampling":{}}}'
