// Drives an MCP server on stdio with the official TypeScript client and its
// Tasks package, whose schemas are strict:
//
//	node drive.mjs [--legacy] COMMAND [ARGUMENT…] <CALLS
//
// CALLS are JSON lines {"tool", "arguments", "cancel": bool, "answer": {action,
// content}}: "cancel" cancels the task once it is there, "answer" is given to
// every question. For each call a JSON line is printed: {"tool", "kind", "task",
// "outcome", "text", "isError", "error", "questions"}; kind is "task" where a
// task was made. It ends with 1 where a call could not be carried out at all.
//
// The packages are looked for in node_modules beside this file or above it.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createApplicationInputHandler, createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const args = process.argv.slice(2);
const legacy = args[0] === "--legacy";
if (legacy) args.shift();
if (args.length === 0) {
	console.error("usage: node drive.mjs [--legacy] COMMAND [ARGUMENT…] <CALLS");
	process.exit(2);
}

const info = { name: "tsclient", version: "1" };
const capabilities = { elicitation: { form: {}, url: {} } };
const transport = new StdioClientTransport({ command: args[0], args: args.slice(1), env: process.env, stderr: "inherit" });

// The client's own codec refuses task results, so these requests go past it: the
// Tasks package wants it so.
let last = 0;
const raw = new Map();
function rawDispatch(request, options) {
	const id = `raw-${++last}`;
	return new Promise((resolve, reject) => {
		raw.set(id, resolve);
		options?.signal?.addEventListener("abort", () => {
			if (raw.delete(id)) reject(options.signal.reason);
		});
		transport.send({ jsonrpc: "2.0", id, ...request }).catch(reject);
	});
}
function withRaw(transport) {
	return new Proxy(transport, {
		set(target, name, value) {
			if (name !== "onmessage" || typeof value !== "function") {
				target[name] = value;
				return true;
			}
			target.onmessage = (message, extra) => {
				const resolve = raw.get(message.id);
				if (message.method !== undefined || resolve === undefined) return value(message, extra);
				raw.delete(message.id);
				resolve(message.error === undefined ? { kind: "result", result: message.result } : { kind: "error", error: message.error });
			};
			return true;
		},
		get(target, name) {
			const value = target[name];
			return typeof value === "function" ? value.bind(target) : value;
		},
	});
}

const client = new Client(info, { capabilities, versionNegotiation: { mode: legacy ? "legacy" : "auto" } });
await client.connect(withRaw(transport));
const tools = new Map((await client.listTools()).tools.map((tool) => [tool.name, tool]));

let call, questions;
const session = createTaskSessionFromClient(client, {
	endpointId: "server",
	...(client.getProtocolEra() === "modern"
		? { rawDispatch, v2RequestFraming: { protocolVersion: "2026-07-28", clientInfo: info, clientCapabilities: capabilities } }
		: {}),
	tools: {
		currentTool(name) {
			const tool = tools.get(name);
			return tool && { name, inputSchema: tool.inputSchema, taskSupport: tool.execution?.taskSupport };
		},
	},
	onInputRequest: createApplicationInputHandler({
		elicitation: async (request) => {
			questions.push(request.params.message);
			return call.answer ?? { action: "decline" };
		},
		sampling: async () => { throw new Error("no sampling here"); },
		roots: async () => ({ roots: [] }),
	}),
});

let failed = false;
for await (const line of createInterface({ input: process.stdin })) {
	if (line.trim() === "") continue;
	call = JSON.parse(line);
	questions = [];
	const report = { tool: call.tool };
	try {
		const execution = await session.callTool(call.tool, call.arguments ?? {}, legacy ? { task: { preference: "prefer" } } : undefined);
		report.kind = execution.kind;
		report.task = execution.handle?.taskId;
		if (call.cancel) await execution.cancel();
		const { outcome } = await execution.settle();
		report.outcome = outcome.status;
		const result = outcome.result;
		report.text = result?.content?.filter((c) => c.type === "text").map((c) => c.text).join("\n");
		report.isError = result?.isError;
		report.error = outcome.error && String(outcome.error.message ?? outcome.error);
	} catch (error) {
		failed = true;
		report.error = String(error?.stack ?? error);
	}
	report.questions = questions;
	console.log(JSON.stringify(report));
}
await session.close();
await client.close();
process.exit(failed ? 1 : 0);
