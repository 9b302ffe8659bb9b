// The tool run_js: it runs a program that a model wrote, in which tools.NAME(input) calls
// the other tools of the run.

import { callTool } from "starling/tools.js";
import { now, random } from "starling";

// What a program may use is in the module only if the source names it: fetch, now, random.
const given = { fetch, now, random };

const AsyncFunction = (async () => {}).constructor;
const above = 2; // lines of the function before the first line of the program

/** What a tool that failed throws. */
class ToolError extends Error {
  constructor(tool, type, message) {
    super(message);
    Object.assign(this, { name: "ToolError", tool, type });
  }
}

// tools has a function for every name, so that a wrong one is answered by the host, which
// knows the right ones. It is neither a promise nor JSON, and has nothing of Object.prototype.
const absent = (name) => typeof name !== "string" || name === "then" || name === "toJSON";
const tools = new Proxy(Object.freeze(Object.create(null)), {
  get: (_, name) => (absent(name) ? undefined : async (input = {}) => {
    const { output, error } = callTool(name, input);
    if (error) throw new ToolError(name, error.type, error.message);
    return output;
  }),
  has: (_, name) => !absent(name),
});

export default {
  name: "run_js",
  description: "Runs a JavaScript program and returns what it returns. The program is the body of an async function: it may use "
    + "await, and its result is what it returns. `input` is the input that is given beside the code. `await tools.NAME(input)` calls "
    + "another tool and returns its output; a tool that fails throws a ToolError with `tool`, `type` and `message`. What console.log "
    + "prints is kept in the log. There are no files, no modules and no state between two programs.",
  inputSchema: {
    type: "object",
    properties: {
      code: { type: "string", description: "The body of an async function in JavaScript", maxLength: 262144 },
      input: { description: "Any JSON value, which the program sees as `input`" },
    },
    required: ["code"],
    additionalProperties: false,
  },

  async execute({ code, input }) {
    try {
      const program = new AsyncFunction("input", "tools", "now", "random", "ToolError", code);
      return await program(input, tools, given.now, given.random, ToolError);
    } catch (error) {
      throw located(error, code);
    }
  },
};

// located returns an error whose message says where in the program it was thrown: the
// frames of the program, the innermost first, and the line with a mark.
function located(error, code) {
  let text;
  try {
    text = error instanceof ToolError ? `ToolError: ${error.tool}: ${error.message}` : String(error);
  } catch {
    text = "something was thrown that has no text";
  }
  const lines = code.split(/\r\n|[\n\r\u2028\u2029]/);
  let shown = "", last = "";
  for (const [, name, line, column] of String(error?.stack ?? "").matchAll(/^ *at (?:(.*?) \()?<input>:(\d+):(\d+)\)?$/gm)) {
    const at = Math.min(Math.max(line - above, 1), lines.length);
    const frame = `\n  at line ${at}, column ${column}${name && name !== "anonymous" ? ` in ${name}` : ""}`;
    if (frame !== last) text += frame; // a recursion is one line
    last = frame;
    shown ||= mark(lines[at - 1], at, Number(column));
  }
  return Object.assign(new Error(text + shown), { name: "", stack: "" });
}

// mark shows a line, or the part of a long one, with a caret below the column.
function mark(line, number, column) {
  const from = Math.max(0, column - 60);
  const head = `\n${number} | `;
  return `${head}${line.slice(from, from + 100)}\n${" ".repeat(head.length - 1 + column - 1 - from)}^`;
}
