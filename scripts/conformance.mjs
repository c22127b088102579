// conformance.mjs SUITE URL TABLE RESULTS [PREFIX]: runs the conformance suite
// SUITE against the server at URL and compares what it found with the table of
// the Markdown file TABLE; with PREFIX, of the scenarios that begin with it only.
// A row of the table is
//
//	| `SCENARIO` | OUTCOME | REASON |
//
// where OUTCOME is "passes": no check fails or warns; "passes but `CHECK`, …":
// exactly these fail or warn; "does not apply": something fails; "skipped": the
// suite itself leaves it out. Any difference fails, the good ones too, so that
// the table stays true.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

const revision = "2026-07-28";
// Some scenarios bound a step by half a second, which a busy machine may miss.
const attempts = 3;

const [suite, url, table, results, prefix = ""] = process.argv.slice(2);

const expected = new Map();
for (const line of readFileSync(table, "utf8").split("\n")) {
	const [, name, outcome] = /^\| `([^`]+)` \| ([^|]+?) \|/.exec(line) ?? [];
	if (name?.startsWith(prefix)) expected.set(name, outcome);
}

// run runs scenarios and returns their checks by the scenario's name.
function run(into, ...which) {
	const suiteRun = spawnSync(process.execPath, [suite, "server", "--url", url, "-o", into, ...which], { encoding: "utf8", timeout: 300_000 });
	if (suiteRun.error) throw suiteRun.error;
	const found = new Map();
	let folders = [];
	try {
		folders = readdirSync(into);
	} catch {
		throw new Error(`the suite left no results:\n${suiteRun.stdout}\n${suiteRun.stderr}`);
	}
	for (const folder of folders) {
		const name = folder.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT.*$/, "");
		found.set(name, JSON.parse(readFileSync(`${into}/${folder}/checks.json`, "utf8")));
	}
	return found;
}

// outcomeOf says what became of a scenario in the words of the table.
function outcomeOf(checks) {
	const bad = [...new Set(checks.filter((c) => c.status === "FAILURE" || c.status === "WARNING").map((c) => c.id))].sort();
	const good = checks.filter((c) => c.status === "SUCCESS").length;
	if (bad.length > 0) return `passes but ${bad.map((id) => "`" + id + "`").join(", ")}`;
	return good > 0 ? "passes" : "skipped";
}

function asExpected(name, checks) {
	const got = outcomeOf(checks);
	const want = expected.get(name);
	return want === "does not apply" ? got.startsWith("passes but") : got === want;
}

const found = run(`${results}/1`, "--requirements", revision);
for (const name of found.keys()) if (!name.startsWith(prefix)) found.delete(name);
let differ = [];
for (const [name, checks] of found) {
	for (let n = 2; n <= attempts && expected.has(name) && !asExpected(name, found.get(name)); n++) {
		found.set(name, run(`${results}/${n}-${name}`, "--scenario", name).get(name) ?? checks);
	}
	const last = found.get(name);
	const passed = `${last.filter((c) => c.status === "SUCCESS").length}/${last.length}`;
	if (asExpected(name, last)) {
		console.log(`ok    ${name.padEnd(48)} ${passed.padStart(6)}  ${expected.get(name)}`);
		continue;
	}
	differ.push(name);
	console.log(`FAIL  ${name.padEnd(48)} ${passed.padStart(6)}  ${outcomeOf(last)}; expected: ${expected.get(name) ?? "nothing: it is not in the table"}`);
	for (const c of last) {
		if (c.status === "FAILURE" || c.status === "WARNING") console.log(`      ${c.id}: ${c.errorMessage}\n      ${JSON.stringify(c.details)?.slice(0, 2000)}`);
	}
}
for (const name of expected.keys()) {
	if (found.has(name)) continue;
	differ.push(name);
	console.log(`FAIL  ${name.padEnd(48)} the suite did not run it`);
}
if (differ.length > 0 || found.size === 0) {
	console.error(`conformance: not as ${table} says: ${differ.join(" ") || "nothing was run"}`);
	process.exit(1);
}
