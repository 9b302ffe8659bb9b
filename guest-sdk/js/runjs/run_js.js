// The tool run_js: it runs a program that a model wrote, in which tools.NAME(input) calls
// the other tools of the run.

import { transform } from "sucrase";

const { callTool, fs, listen, now, placed, plain, random } = starling; // the argument of the script: engine.mjs

const AsyncFunction = (async () => {}).constructor;
const above = 2; // lines of the function before the first line of the program
const brackets = "return (";
const mostPrinted = 16384; // characters that come back with the result; the log has all

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
  get: (_, name) => (absent(name) ? undefined : (input = {}) => call(name, input, new Error())),
  has: (_, name) => !absent(name),
});

async function call(name, input, at) {
  const { output, error } = await callTool(name, input);
  if (error) throw placed(new ToolError(name, error.type, error.message), at);
  return output;
}

// A program sees fs as a global, which it may also declare itself.
Object.defineProperty(globalThis, "fs", { value: fs, writable: true, configurable: true });

export default {
  name: "run_js",
  description: "Runs a JavaScript program and returns what it returns. The program is the body of an async function: it may use "
    + "await, and its result is what it returns. `input` is the input that is given beside the code. `await tools.NAME(input)` calls "
    + "another tool and returns its output; a tool that fails throws a ToolError with `tool`, `type` and `message`. Integers beyond "
    + "2^53 are BigInts. A program that prints with console.log returns { result, console }. Types of TypeScript are ignored. "
    + "`fs` has functions of Node's fs/promises for the files that the call is given, if any: readFile(path, \"utf8\"), writeFile, "
    + "appendFile, readdir, stat, mkdir, rm, rename. Relative paths begin in /workspace. There are no modules and no state between two "
    + "programs.",
  inputSchema: {
    type: "object",
    properties: {
      code: { type: "string", description: "The body of an async function in JavaScript, or an expression", maxLength: 262144 },
      input: { description: "Any JSON value, which the program sees as `input`" },
    },
    required: ["code"],
    additionalProperties: false,
  },

  async execute({ code, input }) {
    let printed = "";
    listen((text) => { printed += text.slice(0, Math.max(0, mostPrinted - printed.length)); });
    let program = { text: unfenced(code) };
    try {
      program = compile(program.text);
      let result = await program.run(input, tools, now, random, ToolError);
      if (typeof result === "function") result = await result(input, tools);
      result = await plain(result, "result");
      const note = result === undefined ? "the program returned nothing: end it with return VALUE" : result === null ? "the program returned null" : undefined;
      return printed || note ? { result: result ?? null, console: printed || undefined, note } : result;
    } catch (error) {
      throw located(error, program, printed && `\nconsole:\n${printed.slice(-2000)}`);
    }
  },
};

// unfenced blanks the lines of a fence of Markdown around a program.
function unfenced(code) {
  const inside = /^(\s*)```[^\n`]*(\n[^]*\n)[ \t]*```\s*$/.exec(code);
  return inside ? inside[1] + inside[2] : code;
}

// compile returns the function of a program, and its text, without the types if it is not
// JavaScript. A program that is an expression has its value.
function compile(text) {
  try {
    return { run: fn(text), text, ...expression(text) };
  } catch (error) {
    try {
      text = transform(text, { transforms: ["typescript"], disableESTransforms: true, keepUnusedImports: true }).code;
      return { run: fn(text), text, ...expression(text) };
    } catch {
      throw error;
    }
  }
}

const fn = (body) => new AsyncFunction("input", "tools", "now", "random", "ToolError", body);

// expression returns the function of a program that is one expression, and in which line the
// text of brackets lies before it. It returns nothing for other programs. The caller has
// compiled the text without brackets, so none of its own closes them.
function expression(text) {
  const blank = /^\s*/.exec(text)[0];
  try {
    return { run: fn(`${blank}${brackets}${text.slice(blank.length).replace(/;\s*$/, "")}\n)`), first: blank.split("\n").length };
  } catch {}
}

// located returns an error whose message says where in the program it was thrown: the
// frames of the program, the innermost first, and the line with a mark.
function located(error, { text: code, first }, printed) {
  let text;
  try {
    text = error instanceof ToolError ? `ToolError: ${error.tool}: ${error.message}` : String(error);
  } catch {
    text = "something was thrown that has no text";
  }
  const lines = code.split(/\r\n|[\n\r\u2028\u2029]/);
  let shown = "", last = "";
  for (let [, name, line, column] of String(error?.stack ?? "").matchAll(/^ *at (?:(.*?) \()?<input>:(\d+):(\d+)\)?$/gm)) {
    const at = Math.min(Math.max(line - above, 1), lines.length);
    if (at === first) column = Math.max(column - brackets.length, 1);
    const frame = `\n  at line ${at}, column ${column}${name && name !== "anonymous" ? ` in ${name}` : ""}`;
    if (frame !== last) text += frame; // a recursion is one line
    last = frame;
    shown ||= mark(lines[at - 1], at, Number(column));
  }
  return Object.assign(new Error(text + shown + printed), { name: "", stack: "" });
}

// mark shows a line, or the part of a long one, with a caret below the column.
function mark(line, number, column) {
  const from = Math.max(0, column - 60);
  const head = `\n${number} | `;
  return `${head}${line.slice(from, from + 100)}\n${" ".repeat(head.length - 1 + column - 1 - from)}^`;
}
