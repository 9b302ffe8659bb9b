// What starling.d.ts makes of schemas. TestTypes checks this file with tsc: a line below
// "@ts-expect-error" must be an error, and no other may be.
import { tool } from "starling";

export const typed = tool({
  name: "typed",
  inputSchema: {
    type: "object",
    properties: {
      text: { type: "string" }, count: { type: "integer" }, on: { type: "boolean" }, tone: { enum: ["plain", "loud"] },
      list: { type: "array", items: { type: "object", properties: { id: { type: "number" } }, required: ["id"] } },
      either: { anyOf: [{ type: "string" }, { type: "null" }] }, both: { type: ["string", "integer"] },
      map: { type: "object", additionalProperties: { type: "number" } }, any: {}, fixed: { const: 7 },
    },
    required: ["text", "list"],
  },
  outputSchema: { type: "object", properties: { sum: { type: "number" } }, required: ["sum"] },
  execute(input, call) {
    const text: string = input.text, count: number | undefined = input.count, on: boolean | undefined = input.on;
    const tone: "plain" | "loud" | undefined = input.tone, ids: number[] = input.list.map(({ id }) => id);
    const either: string | null | undefined = input.either, both: string | number | undefined = input.both;
    const map: { [name: string]: number } | undefined = input.map, fixed: 7 | undefined = input.fixed, run: string = call.runId;
    input.any.whatever();
    // @ts-expect-error: it may be absent
    const certain: number = input.count;
    // @ts-expect-error: it is a number
    const wrong: string | undefined = input.count;
    // @ts-expect-error: there is no such member
    input.other;
    // @ts-expect-error: it is not one of them
    const shout: "shout" | undefined = input.tone;
    return { sum: ids.length, more: [text, count, on, tone, either, both, map, fixed, run, certain, wrong, shout] };
  },
});

export const loose = tool({ name: "loose", execute: (input) => input.anything });

export const wrong = tool({
  name: "wrong",
  inputSchema: { type: "object" },
  outputSchema: { type: "string" },
  // @ts-expect-error: the output is a text
  execute: () => 1,
});

export default [typed, loose, wrong];
