#!/usr/bin/env bash
# research.sh QUESTION ANGLES: plan, research the angles at the same time, and
# write one report. The report is the job's result; the parts stay in
# research/<job>/ for whoever wants to look.
set -euo pipefail
question=$1 angles=$2

work=research/$JOBD_JOB_ID
mkdir -p "$work"

# ask_claude PROMPT: the question goes by standard input, so that it is neither
# taken for an option nor shown by ps.
ask_claude() {
	printf '%s' "$1" | claude -p --output-format text --allowedTools WebSearch WebFetch
}

steps=$((angles + 2))
jobd progress "0/$steps" "planning"
ask_claude "Name the $angles most useful aspects under which to research the question below, one on each line, without numbers and
without any other text.

$question" | grep -v '^[[:space:]]*$' | head -n "$angles" >"$work/plan.txt"

pids=()
n=0
while IFS= read -r aspect; do
	n=$((n + 1))
	ask_claude "Research this aspect of a question on the web and write down what you find, with the source of each fact.

Aspect: $aspect
Question: $question" >"$work/part-$n.md" </dev/null &
	pids+=($!)
done <"$work/plan.txt"
jobd progress "1/$steps" "researching $n aspects"

step=1
for pid in "${pids[@]}"; do
	wait "$pid"
	step=$((step + 1))
	jobd progress "$step/$steps" "researched $((step - 1)) of $n aspects"
done

ask_claude "Write one report that answers the question from the notes below. Keep the sources. Say what remains unknown.

Question: $question

$(cat "$work"/part-*.md)" >"$work/report.md"
jobd progress "$steps/$steps"
jobd result --file "$work/report.md"
