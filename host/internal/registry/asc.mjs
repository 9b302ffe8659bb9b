// Compiles a folder in AssemblyScript: COMPILER FOLDER OUTPUT OPTION...
import { readFileSync, writeFileSync } from "node:fs";
import { basename, isAbsolute, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [compiler, folder, output, ...options] = process.argv.slice(1);
const { main } = await import(pathToFileURL(compiler));
const { error } = await main(options, {
  stdout: process.stderr,
  stderr: process.stderr,
  listFiles: () => [],
  readFile(name) {
    const path = resolve(folder, name);
    const inside = relative(folder, path);
    if (inside.startsWith("..") || isAbsolute(inside) || basename(path) === "asconfig.json" || basename(path) === "package.json") return null;
    try {
      return readFileSync(path, "utf8");
    } catch {
      return null;
    }
  },
  writeFile(name, contents) {
    if (name === "tool.wasm") writeFileSync(output, contents);
  },
});
if (error) process.exitCode = 1;
