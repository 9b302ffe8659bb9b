#!/usr/bin/env node
// Builds a tool from JavaScript or TypeScript: node build.mjs tool.js [tool.wasm]
//
// esbuild makes one script of the tool, what it imports, and runtime/. That
// script is data of adapter.wat, which wasm-merge links with QuickJS. The host
// runs it once, when it loads the module; each call begins with what it left.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, extname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const sdk = dirname(fileURLToPath(import.meta.url));
const packages = join(sdk, "node_modules");
const exported = ["memory", "_initialize", "starling_warmup", "starling_alloc", "starling_describe", "starling_execute"];

// The script lies at the bottom of QuickJS's stack, of 1 MiB, which start-up
// needs the top of.
const sourceAt = 1024;
const maxSource = 512 << 10;

class Refusal extends Error {} // what the author can do something about

try {
  const [major] = process.versions.node.split(".");
  if (major < 20) throw new Refusal(`this is Node ${process.versions.node}, and 20 is needed`);
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
}

async function main([source, target = `${basename(source ?? "", extname(source ?? ""))}.wasm`]) {
  if (!source) throw new Refusal("which tool? usage: node build.mjs tool.js [tool.wasm]");
  const { esbuild, quickjs } = await dependencies();
  const script = await bundle(esbuild, source);
  const module = link(quickjs, basename(source), script);
  const tools = await startUp(module, source);
  writeFileSync(target, module);
  console.log(`${target}: ${tools.map((tool) => tool.name).join(", ")}; ${Math.round(module.length / 1000)} KB`);
}

async function dependencies() {
  try {
    const esbuild = await import("esbuild");
    return { esbuild, quickjs: readFileSync(join(packages, "quickjs-wasi", "quickjs.wasm")) };
  } catch (error) {
    throw new Refusal(`the packages are not there: run "npm ci" in ${sdk}\n  ${error.message}`);
  }
}

// bundle returns the one script, whose value is the function that adapter.wat
// calls. The tool is required, not imported, so that its start-up code runs
// where runtime/module.js can catch what it throws.
async function bundle(esbuild, source) {
  const built = await esbuild.build({
    stdin: {
      contents: `import { load } from ${JSON.stringify(join(sdk, "runtime", "module.js"))};
        export default (lines) => load(() => require(${JSON.stringify(resolve(source))}), lines);`,
      resolveDir: process.cwd(),
    },
    alias: { starling: join(sdk, "runtime", "starling.js") },
    bundle: true, write: false, outfile: "tool.js", sourcemap: "external",
    format: "iife", globalName: "bundle", platform: "neutral", mainFields: ["module", "main"], target: "es2023",
    logLevel: "silent",
  }).catch((failed) => { throw new Refusal(explain(failed, source)); });
  const [map, code] = built.outputFiles.sort((a, b) => b.path.length - a.path.length);
  const script = `${code.text}bundle.default(${JSON.stringify(originalLines(JSON.parse(map.text)))})`;
  const size = Buffer.byteLength(script);
  if (size > maxSource) throw new Refusal(`${source} and what it imports are ${size} bytes, and ${maxSource} are the limit`);
  return script;
}

function explain(failed, source) {
  const lines = (failed.errors ?? []).map(({ text, location, notes }) => {
    const where = location ? `${location.file}:${location.line}:${location.column + 1}: ` : "";
    const builtin = /^Could not resolve "(node:|fs|net|path|os|http|https|crypto|child_process)/.test(text);
    const hint = builtin ? "a tool has no files, processes or sockets; see README.md for what there is" : notes[0]?.text;
    return where + text + (location?.lineText ? `\n    ${location.lineText.trim()}` : "") + (hint ? `\n  ${hint}` : "");
  });
  return `${source} cannot be built\n${lines.join("\n") || failed.message}`;
}

// originalLines says for each line of the script which line of the tool it was:
// [file, line], or 0 for what is not the author's.
function originalLines({ mappings, sources }) {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  let source = 0, line = 0;
  return mappings.split(";").map((group) => {
    let first = 0;
    for (const segment of group.split(",").filter(Boolean)) {
      const fields = [];
      let value = 0, shift = 0;
      for (const digit of segment) {
        const bits = digits.indexOf(digit);
        value |= (bits & 31) << shift;
        shift += 5;
        if (bits & 32) continue;
        fields.push(value & 1 ? -(value >> 1) : value >> 1);
        value = shift = 0;
      }
      source += fields[1] ?? 0;
      line += fields[2] ?? 0;
      const file = resolve(sources[source]);
      first ||= file.startsWith(join(sdk, "runtime")) || sources[source].includes("<stdin>") ? 0 : [basename(file), line + 1];
    }
    return first;
  });
}

// link returns the module: QuickJS, the adapter and the script, without what no
// export needs.
function link(quickjs, name, script) {
  const dir = mkdtempSync(join(tmpdir(), "starling-js-"));
  const at = (file) => join(dir, file);
  try {
    const bytes = Buffer.from(`${name}\0${script}\0`);
    const start = sourceAt + Buffer.byteLength(name) + 1;
    const adapter = readFileSync(join(sdk, "adapter.wat"), "utf8").replace(/\)\s*$/, `
      (global $source i32 (i32.const ${start}))
      (global $source_len i32 (i32.const ${Buffer.byteLength(script)}))
      (data (i32.const ${sourceAt}) "${[...bytes].map((byte) => "\\" + byte.toString(16).padStart(2, "0")).join("")}"))`);
    writeFileSync(at("adapter.wat"), adapter);
    writeFileSync(at("quickjs.wasm"), quickjs);
    writeFileSync(at("exports.json"), JSON.stringify(exported.map((name) => ({ name, export: name, root: true }))));
    run("wasm-merge", at("adapter.wat"), "env", at("quickjs.wasm"), "qjs", "-o", at("merged.wasm"));
    run("wasm-metadce", at("merged.wasm"), "--graph-file", at("exports.json"), "-o", at("tool.wasm"));
    return readFileSync(at("tool.wasm"));
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function run(tool, ...args) {
  const features = ["--enable-bulk-memory", "--enable-sign-ext", "--enable-nontrapping-float-to-int", "--enable-mutable-globals"];
  execFileSync(process.execPath, [join(packages, "binaryen", "bin", tool), ...args, ...features], { stdio: "pipe" });
}

// startUp runs the module's start-up code as the host does, with its doors
// shut, and returns the tools that it describes.
async function startUp(module, source) {
  let memory, said = "";
  const at = (pointer) => new DataView(memory.buffer, pointer);
  const shut = () => { throw new Refusal("the doors are shut while a tool starts up"); };
  const wasi = {
    clock_time_get: (clock, precision, result) => (at(result).setBigUint64(0, 946684800000000000n, true), 0),
    fd_write(fd, list, count, result) {
      for (let i = 0; i < count; i++) {
        said += Buffer.from(memory.buffer, at(list + 8 * i).getUint32(0, true), at(list + 8 * i).getUint32(4, true));
      }
      at(result).setUint32(0, 0, true);
      return 0;
    },
  };
  const { instance } = await WebAssembly.instantiate(module, {
    "starling:v1": { now: shut, random: shut, http: shut },
    wasi_snapshot_preview1: new Proxy(wasi, { get: (known, name) => known[name] ?? (() => 58) }),
  });
  ({ memory } = instance.exports);
  try {
    instance.exports._initialize();
    instance.exports.starling_warmup();
    const document = instance.exports.starling_describe();
    const text = Buffer.from(memory.buffer, Number(document >> 32n), Number(document & 0xffffffffn)).toString();
    return JSON.parse(text).tools;
  } catch (error) {
    throw new Refusal(`${source} fails while it starts up: ${said.trim() || error.message}`);
  }
}
