// What a build may read: the files of one folder, links followed first.

import { existsSync, lstatSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { Refusal } from "./refusal.mjs";

export function holds(root, path) {
  const way = relative(root, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

// read returns the content of a file of the folder root. Both root and the result
// of following all links of path are real paths.
function read(root, path) {
  const real = realpathSync(path);
  if (!holds(root, real)) throw new Refusal(`${real} is outside of ${root}, and a tool is built from the files of its folder alone`);
  if (!statSync(real).isFile()) throw new Refusal(`${real} is not a regular file`);
  return readFileSync(real);
}

// guard is a plugin of esbuild that reads every file for it, whichever import,
// configuration or link has led to it. esbuild also reads the source map that a
// file names in its last comment about one, so each file gets an empty one.
export const guard = (root) => ({
  name: "folder",
  setup(build) {
    build.onLoad({ filter: /./, namespace: "file" }, ({ path, with: { type } }) => {
      try {
        const content = read(root, path), map = "# sourceMappingURL=data:application/json,{}";
        if (type || !/\.([cm]?[jt]s|[jt]sx|css)$/.test(path)) return { contents: content, loader: "default" };
        return { contents: content + (path.endsWith(".css") ? `\n/*${map} */` : `\n//${map}`), loader: "default" };
      } catch (error) {
        return { errors: [{ text: error.message, detail: error instanceof Refusal ? realpathSync(path) : undefined }] };
      }
    });
  },
});

// remedy says what an author can do about the import of a file that is outside of
// the folder: name is what was imported, real the file that it led to.
export function remedy(root, name, real) {
  const pack = packageOf(name);
  const link = pack && lstatSync(join(root, "node_modules", pack), { throwIfNoEntry: false })?.isSymbolicLink();
  if (link && !real.includes(`${sep}node_modules${sep}`)) {
    let dir = dirname(real);
    while (!existsSync(join(dir, "package.json")) && dir !== dirname(dir)) dir = dirname(dir);
    return `the package is linked, so install a copy of it: npm install --prefix ${quote(root)} --install-links ${quote(dir)}`;
  }
  if (pack && real.includes(`${sep}node_modules${sep}`)) return `install it in the folder: npm install --prefix ${quote(root)} ${pack}`;
  return "copy it into the folder, or name a larger folder, all of which the tool may read: --root DIR";
}

// packageOf returns the package that an import names, or nothing if it names a file.
export const packageOf = (name) => /^(@[\w.-]+\/[\w.-]+|\w[\w.-]*)(\/|$)/.exec(name)?.[1];

const quote = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`);

// settings returns the compilerOptions of the tsconfig.json that is nearest to the
// folder from, with those of the files that it extends. esbuild would read that of
// any folder above, and follow what it extends anywhere.
export function settings(root, from) {
  for (let dir = from; holds(root, dir); dir = dirname(dir)) {
    const file = ["tsconfig.json", "jsconfig.json"].map((name) => join(dir, name)).find(existsSync);
    if (file) return options(root, file, 0);
    if (dir === dirname(dir)) break;
  }
  return {};
}

function options(root, file, depth) {
  try {
    if (depth > 10) throw new Error("it extends too many files");
    const { extends: bases = [], compilerOptions: own = {} } = parseWithComments(read(root, file).toString());
    const at = (path) => resolve(dirname(file), path);
    if (own.baseUrl) own.baseUrl = at(own.baseUrl);
    for (const key in own.paths) own.paths[key] = own.paths[key].map((path) => resolve(own.baseUrl ?? at("."), path));
    // A package that it extends says how types are checked, which no build does.
    const inherited = [bases].flat().filter((base) => /^[./]/.test(base)).map(at)
      .map((base) => options(root, existsSync(base) ? base : `${base}.json`, depth + 1));
    return Object.assign({}, ...inherited, own);
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal(`${file}: ${error.message}`);
  }
}

// parseWithComments parses JSON with comments, and with commas before a closing bracket.
function parseWithComments(text) {
  const plain = text.replace(/("(?:\\.|[^"\\])*")|\/\/.*|\/\*[^]*?\*\//g, "$1");
  return JSON.parse(plain.replace(/("(?:\\.|[^"\\])*")|,(?=\s*[\]}])/g, "$1"));
}
