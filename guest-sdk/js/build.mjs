#!/usr/bin/env node
// Builds a tool from JavaScript or TypeScript: starling-build --help
//
// esbuild makes one script of the tool, what it imports, and runtime/. That
// script is data of a module that is QuickJS and adapter.wat. The host runs it
// once, when it loads the module; each call begins with what it left.

import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, extname, join, relative } from "node:path";
import { parseArgs } from "node:util";
import { Refusal, complain, packages, sdk } from "./build/refusal.mjs";
import { build } from "./build/tool.mjs";

const needed = 20; // of Node

const command = basename(process.argv[1]) === "build.mjs" ? `node ${relative("", process.argv[1])}` : "starling-build";
const usage = `usage: ${command} [--root DIR] TOOL.js|TOOL.ts [FILE.wasm]

Builds a module for starling-host from a tool in JavaScript or TypeScript and writes
it to FILE.wasm. Without FILE, weather.ts becomes weather.wasm in the working folder.

  --root DIR   the folder whose files may become part of the module: imports that
               lead out of it are refused. Without it, the folder of the tool
  --version    print the versions that decide the module's bytes
  -h, --help   print this`;

try {
  await main();
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  complain("error", error.message);
  process.exitCode = 1;
}

async function main() {
  if (parseInt(process.versions.node) < needed) throw new Refusal(`this is Node ${process.versions.node}, and ${needed} is needed`);
  const { values, positionals } = read();
  if (values.help) return console.log(usage);
  if (values.version) return console.log(await version());
  const [source, target = `${basename(source ?? "", extname(source ?? ""))}.wasm`, surplus] = positionals;
  const hint = `\nhint: ${command} --help`;
  if (!source) throw new Refusal(`no tool is named${hint}`);
  if (surplus || extname(target) !== ".wasm") throw new Refusal(`the module goes to one file that ends in .wasm, not to ${surplus ?? target}${hint}`);
  if (!statSync(source, { throwIfNoEntry: false })?.isFile()) throw new Refusal(`${source}: no such file`);
  if (values.root !== undefined && !statSync(values.root, { throwIfNoEntry: false })?.isDirectory()) throw new Refusal(`--root ${values.root}: no such folder`);
  const { module, tools } = await build(await esbuild(), source, values.root);
  write(target, module);
  console.log(`${target}: ${tools.map((tool) => tool.name).join(", ")}; ${Math.round(module.length / 1000)} KB`);
}

function read() {
  try {
    return parseArgs({ allowPositionals: true, options: { help: { type: "boolean", short: "h" }, version: { type: "boolean" }, root: { type: "string" } } });
  } catch (error) {
    throw new Refusal(`${error.message.split(". ")[0]}\nhint: ${command} --help`);
  }
}

// version says what decides the bytes of a module. What cannot build has none.
async function version() {
  await esbuild();
  const { version } = JSON.parse(readFileSync(join(packages, "quickjs-wasi", "package.json")));
  return `quickjs-wasi ${version}, Node ${process.versions.node}`;
}

async function esbuild() {
  try {
    return await import("esbuild");
  } catch (error) {
    throw new Refusal(`the packages are not there: ${error.message}\nhint: run npm ci in ${sdk}`);
  }
}

// write puts a new file in the place of the target, which may be a link that the
// folder of the tool brought along.
function write(target, module) {
  const temporary = `${target}.${process.pid}`;
  try {
    writeFileSync(temporary, module, { flag: "wx" });
    renameSync(temporary, target);
  } catch (error) {
    if (error.code !== "EEXIST") rmSync(temporary, { force: true });
    throw new Refusal(error.message);
  }
}
