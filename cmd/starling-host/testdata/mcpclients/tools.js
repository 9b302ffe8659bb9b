// The tools that the conformance suite and client.mjs call.
import { now } from "starling";

const object = (properties, more) => ({ type: "object", properties, additionalProperties: false, ...more });
const tool = (name, execute, more) => ({ name, description: `For tests: ${name}.`, inputSchema: object({}), execute, ...more });

export default [
  tool("test_simple_text", () => "This is a simple text response for testing."),
  tool("test_error_handling", () => {
    throw new Error("This tool intentionally returns an error for testing");
  }),
  tool("test_tool_with_logging", () => {
    console.log("Tool execution started");
    console.log("Tool processing data\u202e");
    console.log("Tool execution completed");
    return "logged";
  }),
  tool("test_logging_tool", () => {
    console.log("logged");
    return "logged";
  }),
  tool("test_header", ({ region }) => region, {
    inputSchema: object({ region: { type: "string", "x-mcp-header": "Region" } }, { required: ["region"] }),
  }),
  tool("test_tool_with_progress", () => {
    for (let i = 0; i < 3; i++) now();
    return "done";
  }),
  tool("json_schema_2020_12_tool", (input) => input, {
    inputSchema: object(
      { name: { type: "string" }, address: { $ref: "#/$defs/address" } },
      {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        $defs: { address: { $anchor: "addressDef", type: "object", properties: { street: { type: "string" }, city: { type: "string" } } } },
        allOf: [{ anyOf: [{ required: ["name"] }, { required: ["address"] }, { maxProperties: 0 }] }],
        if: { properties: { name: { const: "x" } }, required: ["name"] }, then: { maxProperties: 2 }, else: { maxProperties: 3 },
      },
    ),
  }),
  tool("sum", ({ a, b }) => ({ sum: a + b }), {
    inputSchema: object({ a: { type: "number" }, b: { type: "number" } }, { required: ["a", "b"] }),
    outputSchema: object({ sum: { type: "number" } }, { required: ["sum"] }),
    idempotent: true,
  }),
  tool("get", async ({ urls }) => {
    const texts = [];
    for (const url of urls) texts.push(await (await fetch(url)).text());
    return texts.join(" ");
  }, { inputSchema: object({ urls: { type: "array", items: { type: "string" } } }, { required: ["urls"] }) }),
];
