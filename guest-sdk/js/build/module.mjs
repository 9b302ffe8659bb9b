// The module: QuickJS and adapter.wat, linked once, with the script as data.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Refusal, packages, sdk } from "./refusal.mjs";

const exported = ["memory", "_initialize", "starling_warmup", "starling_alloc", "starling_describe", "starling_execute"];

// engine returns QuickJS with the exports and imports of the contract, without
// what none of them needs. Linking takes seconds, so the result is kept among the
// packages, under a name that what it is made of decides.
export function engine(doors) {
  const parts = ["adapter.wat", "streams.wat", "package-lock.json", "build/module.mjs"].map((file) => readFileSync(join(sdk, file)));
  const hash = createHash("sha256").update(Buffer.concat([...parts, Buffer.from(doors.join())])).digest("hex");
  const kept = join(packages, `.engine-${hash.slice(0, 16)}.wasm`);
  if (!existsSync(kept)) {
    const dir = mkdtempSync(join(packages, ".engine-"));
    try {
      renameSync(link(dir, adapter(doors)), kept);
    } finally {
      rmSync(dir, { recursive: true });
    }
  }
  return readFileSync(kept);
}

// adapter returns adapter.wat without the doors that a tool does not use: the
// imports of a module are the list of what it can do.
function adapter(doors) {
  let shut = "";
  const text = readFileSync(join(sdk, "adapter.wat"), "utf8").replace(/\(import "starling:v1" "(\w+)" (.*)\)\)/g, (whole, door, type) => {
    if (doors.includes(door)) return whole;
    shut += `${type} (unreachable))\n`;
    return "";
  });
  return text.replace(/\)\s*$/, `${shut})`);
}

function link(dir, adapter) {
  const at = (file) => join(dir, file);
  const features = ["--enable-bulk-memory", "--enable-sign-ext", "--enable-nontrapping-float-to-int", "--enable-mutable-globals"];
  const run = (tool, ...args) => execFileSync(process.execPath,
    [join(packages, "binaryen", "bin", tool), ...args, ...features], { stdio: "pipe" });
  writeFileSync(at("adapter.wat"), adapter);
  writeFileSync(at("exports.json"), JSON.stringify(exported.map((name) => ({ name, export: name, root: true }))));
  run("wasm-merge", at("adapter.wat"), "env", join(packages, "quickjs-wasi", "quickjs.wasm"), "qjs",
    join(sdk, "streams.wat"), "wasi_snapshot_preview1", "-o", at("merged.wasm"));
  run("wasm-metadce", at("merged.wasm"), "--graph-file", at("exports.json"), "-o", at("engine.wasm"));
  return at("engine.wasm");
}

// The script lies at the bottom of QuickJS's stack of 1 MiB, of which start-up
// needs the top: addresses of script and length, name, script.
const sourceAt = 1024;
const maxSource = 512 << 10;
const DATA_COUNT = 12, DATA = 11;

// embed returns the engine with the script as one more segment of data.
export function embed(engine, name, script) {
  const title = Buffer.from(`${name}\0`), text = Buffer.from(`${script}\0`);
  if (text.length > maxSource) throw new Refusal(`${name} and what it imports are ${text.length} bytes; the limit is ${maxSource}`);
  const header = Buffer.alloc(8);
  header.writeUInt32LE(sourceAt + header.length + title.length, 0);
  header.writeUInt32LE(text.length - 1, 4);
  const bytes = Buffer.concat([header, title, text]);
  const segment = [Buffer.from([0x00, 0x41, ...signed(sourceAt), 0x0b, ...unsigned(bytes.length)]), bytes];

  const out = [engine.subarray(0, 8)];
  for (let at = 8; at < engine.length;) {
    const id = engine[at];
    const [size, start] = readUnsigned(engine, at + 1);
    const content = engine.subarray(start, start + size);
    at = start + size;
    if (id === DATA_COUNT) continue; // only passive segments need it, and there are none
    const [count, rest] = id === DATA ? readUnsigned(content, 0) : [];
    const parts = id === DATA ? [Buffer.from(unsigned(count + 1)), content.subarray(rest), ...segment] : [content];
    const whole = Buffer.concat(parts);
    out.push(Buffer.from([id, ...unsigned(whole.length)]), whole);
  }
  return Buffer.concat(out);
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
