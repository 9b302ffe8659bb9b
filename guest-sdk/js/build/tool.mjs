// The steps from a tool's source to its module.

import { basename } from "node:path";
import { compile, embed, engine } from "./module.mjs";
import { bundle } from "./script.mjs";
import { startUp } from "./trial.mjs";

// build returns the module, and the tools that it describes.
export async function build(esbuild, source, root) {
  const { script, imports } = await bundle(esbuild, source, root);
  const name = basename(source);
  const module = embed(engine(imports), name, await compile(name, script));
  return { module, tools: await startUp(module, source) };
}
