// The client of debug adapters that VS Code's own adapters are tested with, on the bill of
// debugclient_test.go: node debug.mjs PORT TOOL.JS
import assert from "node:assert/strict";
import { DebugClient } from "@vscode/debugadapter-testsupport";

const [port, path] = process.argv.slice(2);
const client = new DebugClient("", "", "starling-host");
await client.start(Number(port));

const { body: can } = await client.initializeRequest();
assert.ok(can.supportsStepBack && can.supportsDataBreakpoints && can.supportsReadMemoryRequest && can.supportsDisassembleRequest);
await Promise.all([client.waitForEvent("initialized"), client.launchRequest({})]);
const set = await client.setBreakpointsRequest({ source: { path }, breakpoints: [{ line: 21 }] });
assert.deepEqual(set.body.breakpoints.map((b) => b.verified), [false]); // a line of a script may never begin

// stops sends a request and returns where the session is then.
async function stops(send, reason) {
  const [event] = await Promise.all([client.waitForEvent("stopped"), send()]);
  assert.equal(event.body.reason, reason, JSON.stringify(event.body));
  const { body } = await client.stackTraceRequest({ threadId: 1 });
  const at = body.stackFrames[0];
  return { ...at, script: at.source ? `${at.name}:${at.line}` : "", event: event.body };
}
async function locals(frameId) {
  const { body } = await client.scopesRequest({ frameId });
  const all = await client.variablesRequest({ variablesReference: body.scopes[0].variablesReference });
  return Object.fromEntries(all.body.variables.map((v) => [v.name, v.value]));
}
const thread = { threadId: 1 };

await stops(() => client.configurationDoneRequest(), "entry");
let at = await stops(() => client.reverseContinueRequest(thread), "breakpoint");
assert.equal(at.script, "execute:21");
assert.equal(at.source.path, path);
assert.equal((await locals(at.id)).cents, "1998.9999999999998");
assert.equal((await client.evaluateRequest({ expression: "bill", frameId: at.id })).body.result, "19.99");
await assert.rejects(client.evaluateRequest({ expression: "bill = 1", frameId: at.id }), "what is evaluated is only read");

// Into the function and back out of it, in both directions.
at = await stops(() => client.stepInRequest(thread), "step");
assert.equal(at.name, "split");
at = await stops(() => client.stepOutRequest(thread), "step");
assert.equal(at.name, "execute");
at = await stops(() => client.send("reverseStepIn", thread), "step");
assert.equal(at.name, "split");
at = await stops(() => client.send("reverseStepOut", thread), "breakpoint"); // that of line 21
assert.equal(at.name, "execute");
at = await stops(() => client.stepBackRequest(thread), "step");
assert.match(at.script, /^execute:(19|20)$/); // which has no operation that can fail

// Effects, fuel and functions.
await client.setExceptionBreakpointsRequest({ filters: ["effect"] });
await stops(() => client.send("untilFuel", { fuel: 1e9 }), "entry");
at = await stops(() => client.reverseContinueRequest(thread), "breakpoint");
assert.equal(at.script, "execute:21");
at = await stops(() => client.reverseContinueRequest(thread), "breakpoint");
assert.equal(at.event.text, "effect");
await client.setExceptionBreakpointsRequest({ filters: [] });
const places = await client.setFunctionBreakpointsRequest({ breakpoints: [{ name: "fuel 1000" }, { name: "fuel much" }] });
assert.deepEqual(places.body.breakpoints.map((b) => b.verified), [true, false]);
at = await stops(() => client.reverseContinueRequest(thread), "breakpoint");
assert.equal(at.event.text, "fuel 1000");
await client.setFunctionBreakpointsRequest({ breakpoints: [] });
await stops(() => client.send("untilFuel", { fuel: 2000 }), "step");

// Memory: who wrote it, and what it is.
const end = await stops(() => client.send("untilFuel", { fuel: Number.MAX_SAFE_INTEGER }), "entry");
const code = await client.send("disassemble", { memoryReference: end.instructionPointerReference, instructionCount: 2, instructionOffset: -1 });
assert.equal(code.body.instructions[1].address, end.instructionPointerReference);
const { body: scopes } = await client.scopesRequest({ frameId: end.id });
const reference = scopes.scopes.find((s) => s.name === "WebAssembly").variablesReference;
const { body: slots } = await client.variablesRequest({ variablesReference: reference });
const slot = slots.variables.find((v) => v.name === "local2");
const info = await client.dataBreakpointInfoRequest({ variablesReference: reference, name: slot.name });
assert.match(info.body.dataId, /^\d+:4$/);
await client.setDataBreakpointsRequest({ breakpoints: [{ dataId: info.body.dataId, accessType: "write" }] });
await client.setBreakpointsRequest({ source: { path }, breakpoints: [] });
const writer = await stops(() => client.reverseContinueRequest(thread), "data breakpoint");
const before = (await client.send("readMemory", { memoryReference: slot.memoryReference, count: 4 })).body.data;
await stops(() => client.nextRequest({ threadId: 1, granularity: "instruction" }), "data breakpoint"); // it writes there
const after = (await client.send("readMemory", { memoryReference: slot.memoryReference, count: 4 })).body.data;
assert.notEqual(before, after);
await client.setDataBreakpointsRequest({ breakpoints: [] });
await stops(() => client.continueRequest(thread), "entry");
const last = await stops(() => client.send("lastWrite", { expression: slot.memoryReference }), "data breakpoint");
assert.equal(last.instructionPointerReference, writer.instructionPointerReference);

await assert.rejects(client.send("untilFuel", { fuel: "much" }), /fuel must be a whole number/);
await assert.rejects(client.send("setVariable", { variablesReference: 1, name: "a", value: "1" }), "nothing can be changed");
await client.disconnectRequest();
console.log("stepped back");
process.exit(0);
