#!/usr/bin/env bash
# ci.sh STEP...: run "make STEP" for each, stop at the first that fails.
set -euo pipefail

done=0
for step in "$@"; do
	jobd progress "$done/$#" "$step"
	echo "== $step"
	if ! make --no-print-directory "$step"; then
		# The output goes with the result; this line says where to look in it.
		jobd result --text "The step \"$step\" failed ($done of $# had passed). The end of the output says why."
		exit 1
	fi
	done=$((done + 1))
done
jobd progress "$done/$#"
jobd result --text "All $# steps passed: $*."
