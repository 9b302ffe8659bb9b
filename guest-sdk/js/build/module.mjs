// The module: QuickJS and adapter.wat, linked once, with the script as data.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Refusal, packages, sdk } from "./refusal.mjs";

const exported = ["memory", "_initialize", "starling_warmup", "starling_alloc", "starling_describe", "starling_execute"];

// engine returns QuickJS with the exports and imports of the contract, without
// what none of them needs. Linking takes seconds, so the result is kept among the
// packages, if they are this user's, under a name that what it is made of decides.
export function engine(imports) {
  const parts = ["adapter.wat", "hash.wat", "streams.wat", "package.json", "build/module.mjs"].map((file) => readFileSync(join(sdk, file)));
  const hash = createHash("sha256").update(Buffer.concat([...parts, Buffer.from(imports.join())])).digest("hex");
  const kept = join(packages, `.engine-${hash.slice(0, 16)}.wasm`);
  if (existsSync(kept)) return readFileSync(kept);
  const keeps = writable(packages);
  const dir = mkdtempSync(join(keeps ? packages : tmpdir(), ".engine-"));
  try {
    const linked = link(dir, adapter(imports));
    const wasm = readFileSync(linked);
    if (keeps) renameSync(linked, kept);
    return wasm;
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function writable(dir) {
  try {
    accessSync(dir, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

// adapter returns adapter.wat without the imports that a tool does not use: the
// imports of a module are the list of what it can do.
function adapter(imports) {
  let absent = "";
  const text = readFileSync(join(sdk, "adapter.wat"), "utf8").replace(/\(import "starling:v1" "(\w+)" (.*)\)\)/g, (whole, name, type) => {
    if (imports.includes(name)) return whole;
    absent += `${type} (unreachable))\n`;
    return "";
  });
  return text.replace(/\)\s*$/, `${absent})`);
}

function link(dir, adapter) {
  const at = (file) => join(dir, file);
  const features = ["--enable-bulk-memory", "--enable-sign-ext", "--enable-nontrapping-float-to-int", "--enable-mutable-globals"];
  const run = (tool, ...args) => execFileSync(process.execPath,
    [join(packages, "binaryen", "bin", tool), ...args, ...features], { stdio: "pipe" });
  writeFileSync(at("adapter.wat"), adapter);
  writeFileSync(at("exports.json"), JSON.stringify(exported.map((name) => ({ name, export: name, root: true }))));
  run("wasm-merge", at("adapter.wat"), "env", join(packages, "quickjs-wasi", "quickjs.wasm"), "qjs",
    join(sdk, "hash.wat"), "hash", join(sdk, "streams.wat"), "wasi_snapshot_preview1", "-o", at("merged.wasm"));
  run("wasm-metadce", at("merged.wasm"), "--graph-file", at("exports.json"), "-o", at("engine.wasm"));
  return at("engine.wasm");
}

// compile returns the script in QuickJS's own form, which is read in a fraction of
// what the text costs. The lines are in it, and the text is not.
export async function compile(name, script) {
  const { CompileFlags, QuickJS } = await import(pathToFileURL(join(packages, "quickjs-wasi", "dist", "index.js")));
  const vm = await QuickJS.create({ wasm: readFileSync(join(packages, "quickjs-wasi", "quickjs.wasm")) });
  try {
    return Buffer.from(vm.compile(script, name, 0, CompileFlags.STRIP_SOURCE));
  } catch (error) {
    throw new Refusal(`${name} cannot be compiled: ${error.message}`);
  } finally {
    vm.dispose();
  }
}

// The script lies behind the memory that QuickJS has at its start, which is made
// larger by it. QuickJS's heap ends before it, and goes on behind it. Its address
// and length are at the bottom of QuickJS's stack.
const headerAt = 1024;
const maxScript = 4 << 20;
const page = 64 << 10;
const MEMORY = 5, DATA_COUNT = 12, DATA = 11;

// embed returns the engine with the script as two more segments of data.
export function embed(engine, name, script) {
  if (script.length > maxScript) throw new Refusal(`${name} and what it imports are ${script.length} bytes; the limit is ${maxScript}`);
  const [pages] = readUnsigned(engine, sections(engine).find(({ id }) => id === MEMORY).start + 2);
  const header = Buffer.alloc(8);
  header.writeUInt32LE(pages * page, 0);
  header.writeUInt32LE(script.length, 4);
  const segments = [segment(headerAt, header), segment(pages * page, script)];

  const out = [engine.subarray(0, 8)];
  for (const { id, start, end } of sections(engine)) {
    if (id === DATA_COUNT) continue; // only passive segments need it, and there are none
    let parts = [engine.subarray(start, end)];
    if (id === MEMORY) parts = [Buffer.from([1, 0, ...unsigned(pages + Math.ceil(script.length / page))])];
    if (id === DATA) {
      const [count, rest] = readUnsigned(engine, start);
      parts = [Buffer.from(unsigned(count + segments.length)), engine.subarray(rest, end), ...segments];
    }
    const whole = Buffer.concat(parts);
    out.push(Buffer.from([id, ...unsigned(whole.length)]), whole);
  }
  return Buffer.concat(out);
}

const segment = (at, bytes) => Buffer.concat([Buffer.from([0x00, 0x41, ...signed(at), 0x0b, ...unsigned(bytes.length)]), bytes]);

function sections(module) {
  const list = [];
  for (let at = 8; at < module.length;) {
    const [size, start] = readUnsigned(module, at + 1);
    list.push({ id: module[at], start, end: start + size });
    at = start + size;
  }
  return list;
}

// Numbers in LEB128.
function readUnsigned(bytes, at) {
  for (let value = 0, shift = 0; ; shift += 7) {
    const byte = bytes[at++];
    value += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return [value, at];
  }
}
const unsigned = (n) => (n < 0x80 ? [n] : [(n & 0x7f) | 0x80, ...unsigned(n >>> 7)]);
const signed = (n) => (n < 0x40 ? [n] : [(n & 0x7f) | 0x80, ...signed(n >>> 7)]);
