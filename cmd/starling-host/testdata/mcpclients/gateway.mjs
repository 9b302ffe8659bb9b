// Is the client that the conformance suite tests: starling-host mcp with the suite's server
// behind it. It calls what its scenario names, or else each tool of the server with what the
// tool requires: an object is the schema of the first tool, which one scenario wants back.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const url = process.argv.at(-1);
const home = mkdtempSync(join(tmpdir(), "gateway-")); // the pins are in it
const client = new Client({ name: "conformance", version: "1" }, { capabilities: {} });
const { toolCalls } = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
try {
  await client.connect(new StdioClientTransport({
    command: "starling-host", args: ["mcp", "--server", `test=${url}`, "--db", join(home, "calls.db")],
    env: { PATH: process.env.PATH, HOME: home }, stderr: "inherit",
  }));
  // Forty clients start at once, so the server may not be there when the tools are listed.
  const connecting = async () => /"state\\?":\s*\\?"connecting/.test(JSON.stringify(await client.callTool({ name: "list_servers", arguments: {} })));
  while (await connecting()) await new Promise((next) => setTimeout(next, 100));
  const tools = (await client.listTools()).tools.filter(({ name }) => name.startsWith("test_")); // without list_servers
  const example = (type) => ({ number: 2, integer: 2, boolean: true, array: [], object: tools[0].inputSchema })[type] ?? "text";
  const calls = toolCalls?.map(({ name, arguments: given }) => ({ name: `test_${name}`, arguments: given })) ?? tools.map(({ name, inputSchema }) => ({
    name, arguments: Object.fromEntries((inputSchema.required ?? []).map((key) => [key, example(inputSchema.properties[key].type)])),
  }));
  const given = (args) => Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null)); // the tool's schema has no null
  for (const call of calls) await client.callTool({ name: call.name, arguments: given(call.arguments) });
} finally {
  await client.close();
  rmSync(home, { recursive: true, force: true });
}
