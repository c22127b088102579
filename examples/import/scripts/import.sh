#!/usr/bin/env bash
# import.sh FILE DRY_RUN: import each line once. What was imported is in
# imported.csv, so a second run passes over it.
set -euo pipefail
file=$1 dry_run=$2
touch imported.csv

total=$(grep -c '' "$file" || true)
imported=0 known=0 faulty=0 line=0 told=-1
report() {
	jobd result --json "{\"lines\": $line, \"imported\": $imported, \"known\": $known, \"faulty\": $faulty, \"dry_run\": $dry_run}"
}
# Cancelled or out of time: say how far it came.
trap 'report; exit 143' TERM

while IFS= read -r row || [ -n "$row" ]; do
	line=$((line + 1))
	# Once a second is enough: more is not shown, and takes time.
	if [ "$SECONDS" -ne "$told" ]; then
		told=$SECONDS
		jobd progress -- "$line/$total" "${row%%,*}"
	fi
	if ! [[ $row =~ ^[^,]+,[^,@[:space:]]+@[^,@[:space:]]+$ ]]; then
		echo "line $line is faulty: $row" >&2
		faulty=$((faulty + 1))
	elif grep -qxF -- "$row" imported.csv; then
		known=$((known + 1))
	else
		[ "$dry_run" = true ] || printf '%s\n' "$row" >>imported.csv
		imported=$((imported + 1))
		sleep "$PAUSE"
	fi
done <"$file"
jobd progress "$line/$total"
report
[ "$faulty" -eq 0 ]
