// The one script that esbuild makes of a tool, what it imports, and runtime/.

import { existsSync, readFileSync, realpathSync } from "node:fs";
import { builtinModules } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { guard, holds, packageOf, remedy, settings } from "./folder.mjs";
import { Refusal, complain, sdk } from "./refusal.mjs";

// bundle returns the one script, whose value is the function that adapter.wat
// calls, and the imports that it uses. The script has files of the folder root, or
// else of the tool's own folder, and of no other. All names are relative to that
// folder, so the module does not say where it was built.
export async function bundle(esbuild, source, root = dirname(source)) {
  const from = realpathSync(dirname(resolve(source))), entry = join(from, basename(source));
  root = realpathSync(root);
  if (!holds(root, realpathSync(entry))) throw new Refusal(`${source} is ${realpathSync(entry)}, which is outside of the folder ${root}`);
  let built = await build(esbuild, entry, source, root);
  const files = authors(built.metafile.inputs, root);
  if (names(files, "subtle")) built = await build(esbuild, entry, source, root, 'import "starling/subtle.js";');
  for (const warning of built.warnings) complain("warning", complaint(warning, root));
  const output = (name) => built.outputFiles.find(({ path }) => basename(path) === name).text;
  const lines = JSON.stringify(lineTable(JSON.parse(output("tool.js.map"))));
  const imports = importsOf(files);
  return { script: `(() => { ${output("tool.js")} return bundle.default(${lines}, ${JSON.stringify(imports)}); })()`, imports };
}

// build makes the script. The tool is required, not imported, so that its start-up
// code runs where runtime/module.js can catch what it throws.
function build(esbuild, entry, source, root, more = "") {
  const main = `import { load } from "starling/module.js"; ${more}
    export default (lines, doors) => load(() => require(${JSON.stringify(`./${basename(entry)}`)}), lines, doors);`;
  return esbuild.build({
    stdin: { contents: main, resolveDir: dirname(entry) },
    absWorkingDir: root, plugins: [runtime, guard(root)],
    tsconfigRaw: { compilerOptions: settings(root, dirname(entry)) },
    bundle: true, write: false, metafile: true, outfile: "tool.js", sourcemap: "external",
    format: "iife", globalName: "bundle", target: "es2023", logLevel: "silent",
    platform: "browser", // of a package that has two forms, the one that needs no Node
    define: { "process.env.NODE_ENV": '"production"', global: "globalThis" },
  }).catch((failed) => { throw new Refusal(explain(failed, source, root)); });
}

// authors returns the text and the imports of each file that is not of runtime/.
function authors(inputs, folder) {
  return Object.entries(inputs)
    .filter(([file]) => !/^starling:|<stdin>/.test(file) && existsSync(join(folder, file)))
    .map(([file, { imports }]) => ({ text: readFileSync(join(folder, file), "utf8"), imports }));
}

const names = (files, word) => files.some(({ text }) => new RegExp(`\\b${word}\\b`).test(text));

// importsOf returns the imports of starling:v1 that the author's files name. What
// calls one without naming it, by eval for instance, gets an error.
function importsOf(files) {
  const importing = files.filter(({ imports }) => imports.some(({ path }) => path === "starling:starling.js"));
  return [["http", "fetch", files], ["now", "now", importing], ["random", "random", importing]]
    .filter(([, word, files]) => names(files, word)).map(([name]) => name);
}

// runtime finds "starling" and what belongs to it.
const runtime = {
  name: "starling",
  setup(build) {
    const namespace = "starling";
    build.onResolve({ filter: /^starling$/ }, () => ({ path: "starling.js", namespace }));
    build.onResolve({ filter: /^starling\/\w+\.js$/ }, ({ path }) => ({ path: basename(path), namespace }));
    build.onResolve({ filter: /^\.\//, namespace }, ({ path }) => ({ path: basename(path), namespace }));
    build.onLoad({ filter: /./, namespace }, ({ path }) => ({ contents: readFileSync(join(sdk, "runtime", path)) }));
  },
};

const explain = (failed, source, root) => `${source} cannot be built\n${failed.errors?.map((e) => complaint(e, root)).join("\n") || failed.message}`;

function complaint({ text, location, detail }, root) {
  const where = location ? `${location.file}:${location.line}:${location.column + 1}: ` : "";
  const line = location ? `\n    ${location.lineText.trim()}` : "";
  return where + text + line + hint(text, location, detail, root);
}

// hint is for an import of a file that is outside of the folder, or of a package
// that is missing.
function hint(text, location, outside, root) {
  if (typeof outside === "string") {
    const { lineText = "", column = 0, length = 0 } = location ?? {}; // in bytes
    const name = Buffer.from(lineText).subarray(column + 1, column + length - 1).toString();
    return `\nhint: ${remedy(root, name, outside)}`;
  }
  const [, missing] = /^Could not resolve "([^"./][^"]*)"/.exec(text) ?? [];
  if (builtinModules.includes(missing?.replace(/^node:/, ""))) return "\nhint: a tool is not run by Node and has no files, processes or sockets: README.md lists what there is";
  const pack = missing && packageOf(missing);
  return pack ? `\nhint: is it installed? npm install ${pack}` : "";
}

// lineTable says which lines of the script are the author's, or a package's, and
// where they came from: a list of files, and runs of lines that follow each other
// in both. A run is its first line in the script, the number of its file, or -1
// for what is neither's, and its first line there.
function lineTable({ mappings, sources }) {
  const files = sources.map(known);
  const runs = [];
  let last = [0, -1, 0];
  originalLines(mappings).forEach(([source, line], i) => {
    const file = source < 0 || !files[source] ? -1 : source;
    const [at, before, from] = last;
    if (file === before && (file < 0 || line - from === i - at)) return;
    last = [i, file, line];
    runs.push(last.map((n) => n.toString(36)).join(" "));
  });
  return { files, runs: runs.join() };
}

// known returns the name by which an author knows a file, or nothing if it is of
// runtime/.
function known(file) {
  if (/^starling:|<stdin>/.test(file)) return "";
  const at = file.lastIndexOf("node_modules/");
  return at >= 0 ? file.slice(at) : file;
}

// originalLines decodes a source map: for each line of the script, the number of
// the source and the line in it, both from 0, or -1 for none.
function originalLines(mappings) {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  let source = 0, line = 0;
  return mappings.split(";").map((group) => {
    let origin = [-1, 0];
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
      origin = [source, line];
    }
    return origin;
  });
}
