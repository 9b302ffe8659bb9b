// The module that a tool's source becomes: what it registers, and how one call
// goes from the host's envelope to the answer.

import "./globals.js";
import { setDoors, start, started } from "./host.js";
import { plain, readCall, write } from "./json.js";
import { exchanging, next } from "./loop.js";
import { describe as text, messageOf, setLines, trace } from "./trace.js";

const members = ["name", "description", "inputSchema", "outputSchema", "effects", "idempotent", "limits", "execute"];
const tools = new Map();
let answer; // the document of this call, once there is one
let failed = false; // whether it says what went wrong
const rejected = new Map(); // the promises that were rejected and that nobody awaits yet, with the reasons

// load runs the start-up code of the tool in the file name, and returns what adapter.wat
// calls: 0 describes, 1 starts a call, 2 asks whether it has an answer, 3 ends it with
// what nobody has caught, 4 says that a promise was rejected, or is awaited now.
export function load({ startUp, name, lines, doors }) {
  setLines(lines);
  setDoors(doors);
  try {
    const exported = startUp();
    if (!("default" in exported)) throw new Error("it exports no tool: write export default { name, execute, ... }");
    for (const tool of [exported.default].flat()) register(tool);
    if (tools.size === 0) throw new Error("it exports an empty list of tools");
  } catch (error) {
    const [at = name, ...rest] = trace(error);
    throw [`${at.replace(/^at .*\((.*)\)$/, "$1")}: ${error?.constructor === Error ? messageOf(error) : text(error)}`, ...rest].join("\n    ");
  }
  const description = write({ tools: [...tools.values()].map(describe) });
  return (what, value, reason, awaited) => {
    if (what === 0) return description;
    if (what === 2) return turn();
    if (what === 3) return uncaught(value);
    if (what === 4) return awaited ? rejected.delete(value) : rejected.set(value, reason);
    start();
    execute(value).then((done) => { answer ??= done; });
  };
}

function register(tool) {
  const reason = invalid(tool);
  if (reason) throw new Error(`tool ${JSON.stringify(tool?.name)}: ${reason}`);
  if (tools.has(tool.name)) throw new Error(`tool ${JSON.stringify(tool.name)}: the name is taken`);
  tools.set(tool.name, tool);
}

// invalid returns why a tool cannot be registered, or nothing.
function invalid(tool) {
  if (typeof tool !== "object" || tool === null) return "a tool is an object";
  const unknown = Object.keys(tool).find((name) => !members.includes(name));
  if (unknown) return `it has the member ${unknown}; those that there are: ${members.join(", ")}`;
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(tool.name ?? "")) return "the name must match ^[a-z][a-z0-9_-]{0,63}$";
  if (typeof (tool.description ?? "") !== "string") return "the description is not a string";
  if (typeof tool.execute !== "function") return "execute is not a function";
  if (tool.inputSchema && tool.inputSchema.type !== "object") return 'inputSchema does not describe an object: it must have the type "object"';
}

const describe = (tool) => ({
  name: tool.name,
  description: tool.description ?? "",
  input_schema: tool.inputSchema ?? { type: "object" },
  output_schema: tool.outputSchema,
  effects: tool.effects,
  idempotent: tool.idempotent,
  limits: tool.limits && {
    fuel: tool.limits.fuel,
    memory_bytes: tool.limits.memoryBytes,
    timeout_ms: tool.limits.timeoutMs,
  },
});

// execute never rejects: what goes wrong is an answer too.
async function execute(envelope) {
  try {
    const { tool: name, input, context } = readCall(envelope);
    const tool = tools.get(name);
    const { run_id: runId, call_id: callId, attempt, variables } = context;
    const output = await tool.execute(input, { runId, callId, attempt, variables });
    return `{"output":${serialize(await plain(output, "output"))}}`;
  } catch (error) {
    return failure(error);
  }
}

function serialize(output) {
  try {
    return write(output) ?? "null";
  } catch (error) {
    throw new Error(`the output is not JSON: ${error.message}`);
  }
}

// uncaught ends the call with what nobody has caught: that is its outcome, even if
// execute has returned, but not if it has failed.
function uncaught(error) {
  if (!started()) throw error;
  if (!failed) answer = failure(error);
}

// turn returns the answer, if there is one. If not, the tool waits for a promise, and all that can
// settle one now is a timer or an exchange. Exchanges that nobody awaits are made, too.
function turn() {
  let busy = false;
  try {
    for (const reason of rejected.values()) {
      if (!failed) console.error("a promise was rejected, and nobody awaits it:");
      uncaught(reason);
    }
    if (started() && (answer === undefined || exchanging())) {
      busy = next();
      if (!busy) throw new Error("execute waits for a promise that nothing will ever settle");
    }
  } catch (error) {
    uncaught(error);
  }
  return busy ? undefined : answer;
}

function failure(error) {
  failed = true;
  console.error(error);
  // A marked error, or one of class Error itself, is what the tool says. Any
  // other is most likely a mistake in it, and says where.
  const meant = error?.kind !== undefined || error?.constructor === Error;
  const message = meant ? messageOf(error) : [text(error), ...trace(error).slice(0, 1)].join(" ");
  return write({ error: {
    kind: String(error?.kind ?? "tool"),
    message,
    retry_after_ms: error?.retryAfterMs > 0 ? Math.ceil(error.retryAfterMs) : undefined,
  } });
}
