// Lets the conformance suite, which imports globSync from fs, run on Node 20, which has none.
// None of the commands that the tests run calls it.
import { register } from "node:module";

const fs = `data:text/javascript,${encodeURIComponent('export * from "node:fs"; export const globSync = undefined;')}`;
const hook = `export const resolve = (name, context, next) =>
  name === "fs" && context.parentURL?.includes("/conformance/") ? { url: ${JSON.stringify(fs)}, shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);
