#!/usr/bin/env node
// Builds a tool from JavaScript or TypeScript: node build.mjs tool.js [tool.wasm]
//
// esbuild makes one script of the tool, what it imports, and runtime/. That
// script is data of a module that is QuickJS and adapter.wat. The host runs it
// once, when it loads the module; each call begins with what it left.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { compile, embed, engine } from "./build/module.mjs";
import { Refusal, packages, sdk } from "./build/refusal.mjs";
import { bundle } from "./build/script.mjs";
import { startUp } from "./build/trial.mjs";

const needed = 20; // of Node

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
}

async function main([source, target]) {
  if (parseInt(process.versions.node) < needed) throw new Refusal(`this is Node ${process.versions.node}, and ${needed} is needed`);
  if (source === "--version") return console.log(await version());
  if (!source) throw new Refusal("which tool? usage: node build.mjs tool.js [tool.wasm]");
  if (!existsSync(source)) throw new Refusal(`${source}: no such file`);
  target ??= `${basename(source, extname(source))}.wasm`;
  const { script, doors } = await bundle(await esbuild(), source);
  const name = basename(source);
  const module = embed(engine(doors), name, await compile(name, script));
  const tools = await startUp(module, source);
  write(target, module);
  console.log(`${target}: ${tools.map((tool) => tool.name).join(", ")}; ${Math.round(module.length / 1000)} KB`);
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

function write(target, module) {
  try {
    writeFileSync(target, module);
  } catch (error) {
    throw new Refusal(error.message);
  }
}
