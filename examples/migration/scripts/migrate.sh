#!/usr/bin/env bash
# migrate.sh UPTO: apply what is missing, after the person agreed.
set -euo pipefail
upto=$1
touch applied.txt

missing=()
for file in migrations/*.sql; do
	number=$(basename "$file" | cut -c1-4)
	if [ "$((10#$number))" -le "$((10#$upto))" ] && ! grep -qxF "$(basename "$file")" applied.txt; then
		missing+=("$file")
	fi
done
if [ ${#missing[@]} -eq 0 ]; then
	jobd result --text "The database is up to date; nothing was changed."
	exit 0
fi

status=0
answer=$(jobd ask "Apply ${#missing[@]} migrations: $(basename -a "${missing[@]}" | paste -sd ' ' -)?" \
	--field 'apply:boolean,title=Apply them now?' --field 'backup:boolean,title=Back up first?,default=true') || status=$?
case $status in
0) ;;
10) # declined
	jobd result --text "The person declined; nothing was changed."
	exit 0
	;;
*) exit "$status" ;;
esac

# The answer is JSON with two booleans.
has() { printf '%s' "$answer" | grep -q "\"$1\": *true"; }
if ! has apply; then
	jobd result --text "The person said no; nothing was changed."
	exit 0
fi
if has backup && [ -e app.db ]; then
	cp app.db "app.db.$JOBD_JOB_ID.backup"
fi
n=0
for file in "${missing[@]}"; do
	jobd progress "$n/${#missing[@]}" "$(basename "$file")"
	./scripts/database.sh <"$file"
	basename "$file" >>applied.txt
	n=$((n + 1))
done
jobd progress "$n/$n"
jobd result --text "Applied $n migrations: $(basename -a "${missing[@]}" | paste -sd ' ' -)."
