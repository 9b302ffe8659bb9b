// Builds what the host has of JavaScript: node engine.mjs FOLDER
//
// FOLDER/quickjs.wasm is QuickJS, adapter.wat, hash.wat and the compiled runtime/. The host
// packs the script of a tool into it. FOLDER/run_js.qjs is the compiled script of run_js.

import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { CompileFlags, QuickJS } from "quickjs-wasi";

const sdk = dirname(fileURLToPath(import.meta.url)), target = process.argv[2];
const packages = join(sdk, "node_modules"), quickjs = join(packages, "quickjs-wasi", "quickjs.wasm");
const exported = ["memory", "_initialize", "starling_warmup", "starling_alloc", "starling_describe", "starling_execute", "starling_source"];
const sourceBytes = 4 << 20; // the area for a script, behind which there is a zero
const headerAt = 1024; // in adapter.wat
const page = 64 << 10;
const CUSTOM = 0, MEMORY = 5, DATA_COUNT = 12, DATA = 11;

// Numbers in LEB128, and what has them.
const unsigned = (n) => (n < 0x80 ? [n] : [(n & 0x7f) | 0x80, ...unsigned(n >>> 7)]);
const signed = (n) => (n < 0x40 ? [n] : [(n & 0x7f) | 0x80, ...signed(n >>> 7)]);
const named = (name) => Buffer.concat([Buffer.from(unsigned(name.length)), Buffer.from(name)]);
const segment = (at, bytes) => Buffer.concat([Buffer.from([0x00, 0x41, ...signed(at), 0x0b, ...unsigned(bytes.length)]), bytes]);

const runtime = await compile("runtime/main.js", (bundle) => `(() => { ${bundle} return bundle.default; })()`);
const script = await compile("runjs/run_js.js", (bundle) =>
  `(starling) => { ${bundle} return { startUp: () => bundle, name: "run_js.js", lines: { files: [], runs: "" }, doors: ["fs", "http", "now", "random"] }; }`);
writeFileSync(join(target, "quickjs.wasm"), engine(runtime));
writeFileSync(join(target, "run_js.qjs"), script);

// compile returns a file with what it imports in QuickJS's own form, without the text.
async function compile(entry, script) {
  const { outputFiles: [{ text }] } = await build({
    absWorkingDir: sdk, entryPoints: [entry], bundle: true, write: false, format: "iife", globalName: "bundle", target: "es2023", platform: "browser",
  });
  const vm = await QuickJS.create({ wasm: readFileSync(quickjs) });
  try {
    return Buffer.from(vm.compile(script(text), "runtime", 0, CompileFlags.STRIP_SOURCE));
  } finally {
    vm.dispose();
  }
}

// engine returns QuickJS with the exports and imports of the contract, without what none of
// them needs. The runtime and the area for a script lie behind the memory that QuickJS has
// at its start. QuickJS's heap ends before them, and goes on behind them.
function engine(runtime) {
  const at = pages(readFileSync(quickjs)) * page, source = at + Math.ceil(runtime.length / page) * page;
  const linked = link(readFileSync(join(sdk, "adapter.wat"), "utf8").replace("SOURCE", source));
  const { version } = JSON.parse(readFileSync(join(packages, "quickjs-wasi", "package.json")));
  const header = Buffer.alloc(8);
  header.writeUInt32LE(at, 0);
  header.writeUInt32LE(runtime.length, 4);
  const segments = [segment(headerAt, header), segment(at, runtime)];
  const out = [linked.subarray(0, 8)];
  for (const { id, start, end } of sections(linked)) {
    if (id === DATA_COUNT) continue; // only passive segments need it, and there are none
    let parts = [linked.subarray(start, end)];
    if (id === MEMORY) parts = [Buffer.from([1, 0, ...unsigned((source + sourceBytes) / page)])];
    if (id === DATA) {
      const [count, rest] = readUnsigned(linked, start);
      parts = [Buffer.from(unsigned(count + segments.length)), linked.subarray(rest, end), ...segments];
    }
    out.push(section(id, parts));
  }
  out.push(section(CUSTOM, [named("starling.interpreter"), Buffer.from(JSON.stringify(
    { language: "JavaScript", name: "QuickJS (quickjs-wasi)", version, source_bytes: sourceBytes - 1 }))]));
  return Buffer.concat(out);
}

function link(adapter) {
  const dir = mkdtempSync(join(tmpdir(), "engine-")), at = (file) => join(dir, file);
  const features = ["--enable-bulk-memory", "--enable-sign-ext", "--enable-nontrapping-float-to-int", "--enable-mutable-globals"];
  const run = (tool, ...args) => execFileSync(process.execPath, [join(packages, "binaryen", "bin", tool), ...args, ...features], { stdio: "pipe" });
  try {
    writeFileSync(at("adapter.wat"), adapter);
    writeFileSync(at("exports.json"), JSON.stringify(exported.map((name) => ({ name, export: name, root: true }))));
    run("wasm-merge", at("adapter.wat"), "env", quickjs, "qjs", join(sdk, "hash.wat"), "hash", join(sdk, "streams.wat"), "wasi_snapshot_preview1", "-o", at("merged.wasm"));
    run("wasm-metadce", at("merged.wasm"), "--graph-file", at("exports.json"), "-o", at("engine.wasm"));
    return readFileSync(at("engine.wasm"));
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function pages(module) {
  return readUnsigned(module, sections(module).find(({ id }) => id === MEMORY).start + 2)[0];
}

function section(id, parts) {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([id, ...unsigned(body.length)]), body]);
}

function sections(module) {
  const list = [];
  for (let at = 8; at < module.length;) {
    const [size, start] = readUnsigned(module, at + 1);
    list.push({ id: module[at], start, end: start + size });
    at = start + size;
  }
  return list;
}

function readUnsigned(bytes, at) {
  for (let value = 0, shift = 0; ; shift += 7) {
    const byte = bytes[at++];
    value += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return [value, at];
  }
}
