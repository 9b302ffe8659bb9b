package js_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/guest"
)

// files maps the names of files to their contents. A content that begins with "->" is a link,
// and one that is "|" a pipe.
type files map[string]string

// write makes the files below dir. In their contents, r replaces words.
func (f files) write(t *testing.T, dir string, r *strings.Replacer) {
	t.Helper()
	for name, text := range f {
		path, text := filepath.Join(dir, name), r.Replace(text)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "->"); link {
			err = os.Symlink(target, path)
		} else if text == "|" {
			err = exec.Command("mkfifo", path).Run()
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestJavaScriptFolderIsAllThatAModuleHolds builds folders that reach for files beside them,
// each by another way. Either the build refuses, and says which import of which file it was, or
// the module has nothing of them. No file of a folder is executed.
func TestJavaScriptFolderIsAllThatAModuleHolds(t *testing.T) {
	const canary = "Canary0fTheHost"
	const rest = `; export default { name: "x", execute: () => x };`
	const copyIt = "hint: copy it into the folder, or move the tool's file to a folder above both"
	const runs = `require("node:fs").writeFileSync("EXECUTED", "");`
	around := files{
		"outside/secret.txt": canary, "outside/secret.json": `{"a":"` + canary + `"}`, "outside/code.js": `export default "` + canary + `";`,
		"outside/style.css": `a{content:"` + canary + `"}`, "outside/package.json": `{"name":"lib","main":"code.js"}`,
		"outside/jsx-runtime.js":        `export const jsx = "` + canary + `";`,
		"outside/map.json":              `{"version":3,"sources":["` + canary + `.ts"],"names":[],"mappings":"AAAA"}`,
		"outside/tsconfig.json":         `{"compilerOptions":{"jsxFactory":"` + canary + `"}}`,
		"tsconfig.json":                 `{"compilerOptions":{"jsxFactory":"` + canary + `"}}`,
		"package.json":                  `{"name":"parent","imports":{"#x":"./outside/code.js"},"browser":{"./tool/x.js":"./outside/code.js"}}`,
		"node_modules/parents/index.js": `export default "` + canary + `";`,
	}
	cases := map[string]struct {
		files files
		want  string // part of what the build says; empty where there is a module
	}{
		"a path from the root, as text":        {files{"tool.js": `import x from "OUTSIDE/secret.txt" with { type: "text" }` + rest}, "tool.js:1:15: the tool takes OUTSIDE/secret.txt, which is outside of its folder"},
		"a path with .., as text":              {files{"tool.js": `import x from "../outside/secret.txt" with { type: "text" }` + rest}, copyIt},
		"as bytes":                             {files{"tool.js": `import x from "../outside/secret.txt" with { type: "bytes" }` + rest}, copyIt},
		"as JSON":                              {files{"tool.js": `import x from "../outside/secret.json" with { type: "json" }` + rest}, copyIt},
		"by extension":                         {files{"tool.js": `import x from "../outside/secret.json"` + rest}, copyIt},
		"a pseudo-file":                        {files{"tool.js": `import x from "/proc/self/environ" with { type: "text" }` + rest}, "/environ, which is outside of its folder"},
		"code":                                 {files{"tool.js": `import x from "../outside/code.js"` + rest}, copyIt},
		"code of a file below":                 {files{"tool.js": `import x from "./lib/x.js"` + rest, "lib/x.js": `export { default } from "../../outside/code.js";`}, "lib/x.js:1:25: "},
		"code in TypeScript":                   {files{"tool.ts": `import x from "../outside/code"` + rest}, copyIt},
		"require":                              {files{"tool.js": `const x = require("../outside/code.js")` + rest}, copyIt},
		"import()":                             {files{"tool.js": `const x = () => import("../outside/code.js")` + rest}, copyIt},
		"import() of several":                  {files{"tool.js": "const x = (y) => import(`../outside/${y}.js`)" + rest}, copyIt},
		"a file URL":                           {files{"tool.js": `import x from "file://OUTSIDE/secret.txt"` + rest}, "Could not resolve"},
		"new URL":                              {files{"tool.js": `const x = String(new URL("../outside/secret.txt", "http://h/"))` + rest}, ""},
		"a style sheet":                        {files{"tool.js": `import x from "../outside/style.css"` + rest}, copyIt},
		"@import of a style sheet":             {files{"tool.js": `import x from "./a.css"` + rest, "a.css": `@import "../outside/style.css";`}, "a.css:1:9: "},
		"url() of a style sheet":               {files{"tool.js": `import x from "./a.css"` + rest, "a.css": `a{background:url(../outside/secret.txt)}`}, copyIt},
		"a link to a file":                     {files{"tool.js": `import x from "./x.txt"` + rest, "x.txt": "->OUTSIDE/secret.txt"}, copyIt},
		"a link to a link":                     {files{"tool.js": `import x from "./x.txt"` + rest, "x.txt": "->y.txt", "y.txt": "->../outside/secret.txt"}, copyIt},
		"a link to a folder":                   {files{"tool.js": `import x from "./lib/secret.txt"` + rest, "lib": "->OUTSIDE"}, copyIt},
		"the tool is a link":                   {files{"tool.js": "->OUTSIDE/code.js"}, "tool.js is OUTSIDE/code.js, which is outside of the folder FOLDER"},
		"a device":                             {files{"tool.js": `import x from "./x.txt"` + rest, "x.txt": "->/dev/zero"}, copyIt},
		"a pipe":                               {files{"tool.js": `import x from "./pipe.txt"` + rest, "pipe.txt": "|"}, "is not a regular file"},
		"tsconfig: paths":                      {files{"tool.ts": `import x from "@/code"` + rest, "tsconfig.json": `{"compilerOptions":{"paths":{"@/*":["../outside/*"],}}} // x`}, copyIt},
		"tsconfig: baseUrl":                    {files{"tool.ts": `import x from "code"` + rest, "tsconfig.json": `{"compilerOptions":{"baseUrl":"OUTSIDE"}}`}, copyIt},
		"tsconfig: extends":                    {files{"tool.tsx": `const x = () => <p/>` + rest, "tsconfig.json": `{"extends":"../outside/tsconfig.json"}`}, "OUTSIDE/tsconfig.json, which is outside of its folder"},
		"tsconfig: extends of what extends":    {files{"tool.tsx": `const x = () => <p/>` + rest, "tsconfig.json": `{"extends":["./b"]}`, "b.json": `{"extends":"OUTSIDE/tsconfig"}`}, "outside of its folder"},
		"tsconfig: extends itself":             {files{"tool.ts": `const x = 1` + rest, "tsconfig.json": `{"extends":"./tsconfig.json"}`}, "it extends too many files"},
		"tsconfig: a link":                     {files{"tool.tsx": `const x = () => <p/>` + rest, "tsconfig.json": "->OUTSIDE/tsconfig.json"}, "outside of its folder"},
		"tsconfig of a folder above":           {files{"tool.tsx": `const x = () => <p/>` + rest}, ""},
		"tsconfig of a folder below":           {files{"tool.js": `import x from "./lib/x.tsx"` + rest, "lib/x.tsx": `export default () => <p/>;`, "lib/tsconfig.json": "->OUTSIDE/tsconfig.json"}, ""},
		"jsxImportSource":                      {files{"tool.tsx": "/** @jsxRuntime automatic @jsxImportSource OUTSIDE */ const x = () => <p/>" + rest}, "outside of its folder"},
		"package.json: main":                   {files{"tool.js": `import x from "a"` + rest, "node_modules/a/package.json": `{"main":"../../../outside/code.js"}`}, "outside of its folder"},
		"package.json: browser, from the root": {files{"tool.js": `import x from "a"` + rest, "node_modules/a/package.json": `{"browser":{"./x.js":"OUTSIDE/code.js"},"main":"./x.js"}`, "node_modules/a/x.js": ""}, "Could not resolve"},
		"package.json: browser": {files{"tool.js": `import x from "a"` + rest, "node_modules/a/package.json": `{"browser":{"./x.js":"../../../outside/code.js"},"main":"./x.js"}`,
			"node_modules/a/x.js": ""}, "outside of its folder"},
		"package.json: exports":              {files{"tool.js": `import x from "a"` + rest, "node_modules/a/package.json": `{"exports":"./../../../outside/code.js"}`}, "Could not resolve"},
		"package.json: exports, by a link":   {files{"tool.js": `import x from "a"` + rest, "node_modules/a/package.json": `{"exports":"./lib/code.js"}`, "node_modules/a/lib": "->OUTSIDE"}, "outside of its folder"},
		"package.json: imports":              {files{"tool.js": `import x from "#x"` + rest, "package.json": `{"imports":{"#x":"./lib/code.js"}}`, "lib": "->OUTSIDE"}, copyIt},
		"package.json: imports of one above": {files{"tool.js": `import x from "#x"` + rest}, copyIt},
		"a linked package":                   {files{"tool.js": `import x from "lib"` + rest, "node_modules/lib": "->OUTSIDE"}, "hint: the package is linked, so install a copy of it: npm install --prefix FOLDER --install-links OUTSIDE"},
		"a linked package, by its file":      {files{"tool.js": `import x from "lib/code.js"` + rest, "node_modules/lib": "->../../outside"}, "--install-links OUTSIDE"},
		"a package of a folder above":        {files{"tool.js": `import x from "parents"` + rest}, "hint: install it in the folder: npm install --prefix FOLDER parents"},
		"all packages of a folder above":     {files{"tool.js": `import x from "parents"` + rest, "node_modules": "->../node_modules"}, "npm install --prefix FOLDER parents"},
		"NODE_PATH":                          {files{"tool.js": `import x from "code"` + rest}, "hint: install the package in the folder: npm install --prefix FOLDER code"},
		"Plug'n'Play":                        {files{"tool.js": `import x from "a"` + rest, ".pnp.data.json": `{"enableTopLevelFallback":true,"fallbackPool":[],"packageRegistryData":[[null,[[null,{"packageLocation":"./","packageDependencies":[["a","1"]]}]]],["a",[["1",{"packageLocation":"../outside/","packageDependencies":[]}]]]]}`}, "outside of its folder"},
		"a source map":                       {files{"tool.js": "const x = 1" + rest + "\n//# sourceMappingURL=../outside/map.json"}, ""},
		"a source map from the root":         {files{"tool.js": "const x = 1" + rest + "\n//# sourceMappingURL=OUTSIDE/map.json\n"}, ""},
		"a source map by a URL":              {files{"tool.js": "const x = 1" + rest + "\n//@ sourceMappingURL=file://OUTSIDE/map.json"}, ""},
		"a source map by a link":             {files{"tool.js": `import x from "a"` + rest, "node_modules/a/index.js": "/*# sourceMappingURL=m.map */ module.exports = 1;", "node_modules/a/m.map": "->OUTSIDE/map.json"}, ""},
		"code of the folder that would be run": {files{"tool.js": `const x = 1` + rest, "package.json": `{"scripts":{"prepare":"touch EXECUTED","build":"touch EXECUTED"}}`, ".npmrc": "script-shell=./sh\nnode-options=--require ./run.js",
			"esbuild.config.mjs": runs, ".pnp.cjs": runs, "run.js": runs, "node_modules/esbuild/lib/main.js": runs, "node_modules/quickjs-wasi/dist/index.js": runs, "node_modules/.bin/esbuild": "#!/bin/sh\ntouch EXECUTED\n"}, ""},
		// What is inside is taken, also by a link.
		"a link that stays inside": {files{"tool.ts": `import x from "@/x"; import a from "a"; console.log(a)` + rest, "lib/x.ts": "export default 1 as number;", "node_modules/a": "->../packages/a", "packages/a/index.js": "module.exports = 2;",
			"tsconfig.json": `{ /* of a package */ "extends": ["@tsconfig/node20", "./base.json"] }`, "base.json": `{"compilerOptions":{"paths":{"@/*":["./lib/*"]}}}`}, ""},
	}

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			base, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			r := strings.NewReplacer("OUTSIDE", filepath.Join(base, "outside"), "FOLDER", filepath.Join(base, "tool"), "EXECUTED", filepath.Join(base, "EXECUTED"))
			around.write(t, base, r)
			c.files.write(t, filepath.Join(base, "tool"), r)
			sources, err := filepath.Glob(filepath.Join(base, "tool", "tool.*s*"))
			if err != nil || len(sources) != 1 {
				t.Fatal(sources, err)
			}
			t.Chdir(filepath.Join(base, "tool"))
			t.Setenv("NODE_PATH", filepath.Join(base, "outside"))
			module, err := guest.Find(t.Context(), sources[0])
			said := ""
			if err != nil {
				said = err.Error()
			}
			if want := r.Replace(c.want); (err != nil) != (want != "") || !strings.Contains(said, want) {
				t.Errorf("the build says\n%s\nand is to say\n%s", said, want)
			}
			if bytes.Contains(module.Wasm, []byte(canary)) || bytes.Contains(module.Wasm, []byte("Q2FuYXJ5")) || strings.Contains(said, canary) {
				t.Error("the module, or the error, has a file of the host")
			}
			if _, err := os.Stat(filepath.Join(base, "EXECUTED")); err == nil {
				t.Error("the build has executed a file of the folder")
			}
		})
	}
}
