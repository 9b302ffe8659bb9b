// Checks "starling-host mcp" with the client of the TypeScript SDK:
//
//   node client.mjs FOLDER WORLD URL              over HTTP
//   node client.mjs FOLDER WORLD COMMAND ARG...   over standard input and output
//
// The server has the tools of tools.js, and those of FOLDER/changing.wasm, in whose place
// this program puts FOLDER/changed.wasm. WORLD is the address that the tool "get" may
// reach: /held is answered after /release was asked for, and /never is not answered. It
// says at /begun and /ended that a request for that has come and gone.
import assert from "node:assert/strict";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { LoggingMessageNotificationSchema, ProgressNotificationSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [folder, world, command, ...args] = process.argv.slice(2);
const transport = command.startsWith("http://")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
const client = new Client({ name: "test", version: "1" });
const logged = [];
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => logged.push(params));
// The handler "onprogress" of a call misses what arrives together with the result.
let onprogress;
client.setNotificationHandler(ProgressNotificationSchema, ({ params }) => onprogress(params));
const changed = new Promise((resolve) => client.setNotificationHandler(ToolListChangedNotificationSchema, resolve));
await client.connect(transport);
const call = (name, input = {}, options) => client.callTool({ name, arguments: input, _meta: options?.meta }, undefined, options);

// Tools, annotations and schemas.
const tools = Object.fromEntries((await client.listTools()).tools.map((t) => [t.name, t]));
assert.deepEqual(tools.sum.annotations, { readOnlyHint: false, idempotentHint: true, openWorldHint: true });
assert.deepEqual(tools.sum.outputSchema.required, ["sum"]);
assert.deepEqual(tools.hello.annotations, { readOnlyHint: true, idempotentHint: true, openWorldHint: false });
assert.equal(tools.get.outputSchema, undefined);

// Structured content, which the client compares with the schema; arguments that are refused.
const sum = await call("sum", { a: 2, b: 3 });
assert.deepEqual(sum.structuredContent, { sum: 5 });
assert.deepEqual(sum.content, [{ type: "text", text: '{"sum":5}' }]);
assert.match(sum._meta["starling/replay"], /^starling-host replay /);
const refused = await call("sum", { a: "2" });
assert.equal(refused.isError, true);
assert.match(refused.content[0].text, /^input does not match the schema: /);

// Progress, in the order of the effects and before the result.
const progress = [];
onprogress = (p) => progress.push(p);
const got = await call("get", { urls: [`${world}/a`, `${world}/b`] }, { meta: { progressToken: "p" } });
assert.equal(got.content[0].text, "at /a at /b");
assert.deepEqual(progress, ["a", "b"].map((path, i) => ({ progressToken: "p", progress: i + 1, message: `GET ${world}/${path}` })));

// Progress while the call goes on.
let slow;
const first = await new Promise((resolve) => {
  onprogress = resolve;
  slow = call("get", { urls: [`${world}/a`, `${world}/held`] }, { meta: { progressToken: 7 } });
});
assert.equal(first.message, `GET ${world}/a`);
await fetch(`${world}/release`);
assert.equal((await slow).content[0].text, "at /a at /held");

// What a tool writes, once a level is set, with the characters escaped that reorder text.
await call("test_tool_with_logging");
assert.deepEqual(logged, []);
await client.setLoggingLevel("info");
await call("test_tool_with_logging");
assert.deepEqual(logged.splice(0), ["Tool execution started", "Tool processing data\\u202e", "Tool execution completed"].map((data) => ({
  level: "info", logger: "test_tool_with_logging", data,
})));
await client.setLoggingLevel("warning");
await call("test_tool_with_logging");
assert.deepEqual(logged, []);

// A call that is cancelled: its request to the world ends.
const abort = new AbortController();
const cancelled = assert.rejects(call("get", { urls: [`${world}/never`] }, { signal: abort.signal }));
await fetch(`${world}/begun`);
abort.abort("enough");
await cancelled;
await fetch(`${world}/ended`);

// Another list of tools, after its module has changed.
await rename(join(folder, "changed.wasm"), join(folder, "changing.wasm"));
await changed;
const names = (await client.listTools()).tools.map((t) => t.name);
assert.ok(names.includes("lookup") && !names.includes("hello"), names.join());
await client.close();
