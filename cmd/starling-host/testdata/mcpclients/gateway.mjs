// Is the client that the conformance suite tests: starling-host mcp with the suite's server
// behind it. It calls what its scenario names, or else each tool of the server with what the
// tool requires: an object is the schema of the first tool, which one scenario wants back.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [version, url] = process.argv.slice(-2); // a server hears the version that its client speaks
const home = mkdtempSync(join(tmpdir(), "gateway-")); // the pins are in it
const client = { name: "conformance", version: "1" };
const { toolCalls } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const waiting = new Map();
let program;
const say = (message) => program.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const ask = (method, params = {}) => new Promise((answered) => {
  const key = "io.modelcontextprotocol/";
  const _meta = { [key + "protocolVersion"]: version, [key + "clientInfo"]: client, [key + "clientCapabilities"]: {} };
  waiting.set(waiting.size, answered);
  say({ id: waiting.size - 1, method, params: version < "2026-07-28" ? params : { ...params, _meta } });
});
try {
  program = spawn("starling-host", ["mcp", "--server", `test=${url}`, "--db", join(home, "calls.db")], {
    env: { PATH: process.env.PATH, HOME: home }, stdio: ["pipe", "pipe", "inherit"],
  });
  createInterface({ input: program.stdout }).on("line", (line) => {
    const { id, method, result, error } = JSON.parse(line);
    if (method) {
      if (id !== undefined) say({ id, error: { code: -32601, message: "Method not found" } });
      return;
    }
    waiting.get(id)?.(result ?? { error });
  });
  if (version < "2026-07-28") {
    await ask("initialize", { protocolVersion: version, capabilities: {}, clientInfo: client });
    say({ method: "notifications/initialized" });
  }
  // Forty clients start at once, so the server may not be there when the tools are listed.
  const connecting = async () => /"state\\?":\s*\\?"connecting/.test(JSON.stringify(await ask("tools/call", { name: "list_servers", arguments: {} })));
  while (await connecting()) await new Promise((next) => setTimeout(next, 100));
  const tools = (await ask("tools/list")).tools.filter(({ name }) => name.startsWith("test_")); // without list_servers
  const example = (type) => ({ number: 2, integer: 2, boolean: true, array: [], object: tools[0].inputSchema })[type] ?? "text";
  const calls = toolCalls?.map(({ name, arguments: given }) => ({ name: `test_${name}`, arguments: given })) ?? tools.map(({ name, inputSchema }) => ({
    name, arguments: Object.fromEntries((inputSchema.required ?? []).map((key) => [key, example(inputSchema.properties[key].type)])),
  }));
  const given = (args) => Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null)); // the tool's schema has no null
  for (const call of calls) await ask("tools/call", { name: call.name, arguments: given(call.arguments) });
} finally {
  const ended = new Promise((end) => program.on("exit", end));
  program.stdin.end();
  await ended;
  rmSync(home, { recursive: true, force: true });
}
