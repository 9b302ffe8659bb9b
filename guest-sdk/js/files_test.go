package js_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
)

// failing makes a program that returns the code of what each expression rejects with, or null.
func failing(expressions ...string) string {
	return `const codes = []; for (const f of [` + "() => " + strings.Join(expressions, ", () => ") + `]) codes.push(await f().then(() => null, (e) => e.code)); return codes`
}

// filePrograms read files that they cannot change: /workspace and /data/in.
var filePrograms = []struct{ name, code, want string }{
	{"text", `return fs.readFile("table.csv", "utf8")`, `"n,x\n1,a\n2,b\n"`},
	{"text by an option", `return [await fs.readFile("/workspace/ü/😀.txt", { encoding: "utf-8" }), await fs.readFile("mark.txt", "utf8")]`, `["grüße",` + "\"\ufeffx\"]"},
	{"bytes", `const b = await fs.readFile("bytes"); return [b instanceof Uint8Array, b.length, b[0], b[255], b.every((n, i) => n === i % 256)]`, `[true,512,0,255,true]`},
	{"an empty file", `return [(await fs.readFile("empty")).length, await fs.readFile("empty", "utf8")]`, `[0,""]`},
	{"a large file", `const b = await fs.readFile("/data/in/large"), text = await fs.readFile("/data/in/large", "utf8"); return [b.length, b.at(-1), text.length, text.slice(0, 3), text.endsWith("end")]`, `[10485760,100,10485760,"xxx",true]`},
	{"names", `return [await fs.readdir("."), await fs.readdir("/"), await fs.readdir("/data/"), await fs.readdir("../data/in"), await fs.readdir("sub/..")]`,
		`[["back","bytes","empty","many","mark.txt","sub","table.csv","ü"],["data","workspace"],["in"],["a.txt","large"],["back","bytes","empty","many","mark.txt","sub","table.csv","ü"]]`},
	{"names with types", `return (await fs.readdir(".", { withFileTypes: true })).slice(0, 4).map((e) => [e.name, e.parentPath, e.isFile(), e.isDirectory(), e.isSymbolicLink()])`,
		`[["back",".",false,false,true],["bytes",".",true,false,false],["empty",".",true,false,false],["many",".",false,true,false]]`},
	{"names below", `return [await fs.readdir("sub/", { recursive: true }), (await fs.readdir("sub", { recursive: true, withFileTypes: true })).map((e) => e.parentPath + ":" + e.name)]`,
		`[["a","a/f","deep.txt"],["sub:a","sub/a:f","sub:deep.txt"]]`},
	{"many names", `const names = await fs.readdir("many"); return [names.length, names[0], names.at(-1), new Set(names).size]`, `[600,"file-000","file-599",600]`},
	{"stat", `const s = await fs.stat("table.csv"), d = await fs.stat("sub"), l = await fs.lstat("back"), r = await fs.stat("/");
		return [s, s.isFile(), s.isDirectory(), d.isDirectory(), d.isFile(), l.isSymbolicLink(), (await fs.stat("back")).isDirectory(), r.isDirectory(), await fs.access("sub") ?? "there"]`,
		`[{"mtime":"2000-01-01T00:00:00.000Z","mtimeMs":946684800000,"size":12},true,false,true,false,true,true,true,"there"]`},
	{"links", `return [await fs.readFile("back/deep.txt", "utf8"), await fs.readFile("back/../table.csv", "utf8").then((t) => t.length)]`, `["deep",12]`},
	{"paths", `return Promise.all(["./table.csv", "sub/../table.csv", "//workspace//table.csv", "/workspace/./sub/../../workspace/table.csv", "../../workspace/table.csv", "/data/../workspace/table.csv"].map(async (p) => (await fs.stat(p)).size))`, `[12,12,12,12,12,12]`},
	{"what is not there", failing(`fs.readFile("none")`, `fs.readdir("none")`, `fs.stat("none")`, `fs.readFile("/none/x")`, `fs.readFile("/x")`, `fs.stat("../../..x")`, `fs.readFile("")`, `fs.stat("sub/none/x")`, `fs.access("/tmp")`, `fs.rm("none")`, `fs.rm("none", { force: true })`),
		`["ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT",null]`},
	{"what is something else", failing(`fs.readFile("sub")`, `fs.readFile("/data")`, `fs.readFile("/workspace")`, `fs.readdir("table.csv")`, `fs.readFile("table.csv/x")`, `fs.readFile("x\0y")`, `fs.readFile("x".repeat(300))`, `fs.rm("sub")`, `fs.rm("/data", { recursive: true })`, `fs.rm(".", { recursive: true })`, `fs.rm("/workspace/", { recursive: true })`),
		`["EISDIR","EISDIR","EISDIR","ENOTDIR","ENOTDIR","EINVAL","ENAMETOOLONG","EISDIR","EBUSY","EBUSY","EBUSY"]`},
	{"a folder that is read only", failing(`fs.writeFile("table.csv", "x")`, `fs.writeFile("new", "x")`, `fs.appendFile("table.csv", "x")`, `fs.mkdir("new")`, `fs.mkdir("sub/b/c", { recursive: true })`, `fs.rm("table.csv")`, `fs.rm("sub", { recursive: true })`, `fs.rmdir("sub/a")`, `fs.unlink("table.csv")`, `fs.rename("table.csv", "b")`,
		`fs.writeFile("/x", "x")`, `fs.mkdir("/tmp")`, `fs.mkdir("/out/a", { recursive: true })`, `fs.writeFile("/tmp/x", "x")`, `fs.copyFile("table.csv", "b")`, `fs.mkdir("sub", { recursive: true })`, `fs.mkdir("/data/in", { recursive: true })`, `fs.mkdir("/data")`),
		`["EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","EROFS","ENOENT","EROFS",null,null,"EEXIST"]`},
	{"what is no path, text or encoding", failing(`fs.readFile()`, `fs.readFile(5)`, `fs.readFile(null, "utf8")`, `fs.writeFile("x", {})`, `fs.writeFile("x")`, `fs.readFile("table.csv", "latin1")`, `fs.writeFile("x", "x", "base64")`, `fs.writeFile("x", "x", { flag: "r+" })`),
		`["ERR_INVALID_ARG_TYPE","ERR_INVALID_ARG_TYPE","ERR_INVALID_ARG_TYPE","ERR_INVALID_ARG_TYPE","ERR_INVALID_ARG_TYPE","ERR_INVALID_ARG_VALUE","ERR_INVALID_ARG_VALUE","ERR_INVALID_ARG_VALUE"]`},
	{"an error", `try { await fs.copyFile("none", "b") } catch (e) { return [e instanceof Error, e.message, e.code, e.syscall, e.path, e.dest] }`,
		`[true,"ENOENT: no such file or directory, copyfile 'none' -> 'b'","ENOENT","copyfile","none","b"]`},
	{"an error that nobody catches", "const a = 1;\nconst text = await fs.readFile('notes.txt', 'utf8');", "Error: ENOENT: no such file or directory, open 'notes.txt'\n  at line 2, column 23\n2 | const text"},
	{"an error that nobody awaits", `fs.writeFile("x", "y"); return 1`, "EROFS: read-only file system, open 'x'"},
	{"a name of the program's own", `const fs = { readFile: () => 5 }; return fs.readFile()`, `5`},
	{"functions of the program's own", "async (input, tools) => { const { readFile } = fs; return (await readFile('table.csv', 'utf8')).length }", `12`},
	{"many at once", `return (await Promise.all((await fs.readdir("many")).map((n) => fs.readFile("many/" + n, "utf8")))).filter((t) => t === "x").length`, `600`},
}

// writingPrograms may change /workspace, which has the same at the start of each.
var writingPrograms = []struct{ name, code, want string }{
	{"text", `await fs.writeFile("ü.md", "größe 😀"); return [await fs.readFile("/workspace/ü.md", "utf8"), (await fs.stat("ü.md")).size, await fs.readdir(".")]`, `["größe 😀",12,["back","bytes","empty","many","mark.txt","sub","table.csv","ü","ü.md"]]`},
	{"bytes", `const b = new Uint8Array([0, 255, 10, 13, 128]); await fs.writeFile("b", b); await fs.writeFile("c", b.subarray(1, 3)); await fs.writeFile("d", b.buffer); await fs.writeFile("e", new DataView(b.buffer, 4)); await fs.writeFile("f", new Uint16Array([258]));
		return Promise.all([..."bcdef"].map((n) => fs.readFile(n)))`, `[[0,255,10,13,128],[255,10],[0,255,10,13,128],[128],[2,1]]`},
	{"half of a pair", `await fs.writeFile("a", "x😀".slice(0, 2)); return [...await fs.readFile("a")]`, `[120,239,191,189]`},
	{"shorter", `await fs.writeFile("table.csv", "x"); await fs.writeFile("empty", ""); return [await fs.readFile("table.csv", "utf8"), (await fs.stat("empty")).size]`, `["x",0]`},
	{"appended", `await fs.appendFile("table.csv", "3,c\n"); await fs.appendFile("log", "a"); await fs.appendFile("log", new Uint8Array([98])); await fs.writeFile("log", "c", { flag: "a" }); return [await fs.readFile("table.csv", "utf8"), await fs.readFile("log", "utf8")]`, `["n,x\n1,a\n2,b\n3,c\n","abc"]`},
	{"new only", failing(`fs.writeFile("table.csv", "x", { flag: "wx" })`, `fs.writeFile("x", "x", { flag: "wx" })`, `fs.appendFile("x", "x", { flag: "ax" })`, `fs.mkdir("sub")`, `fs.mkdir("table.csv", { recursive: true })`, `fs.mkdir("table.csv/a", { recursive: true })`, `fs.mkdir("a/b")`), `["EEXIST",null,"EEXIST","EEXIST","EEXIST","ENOTDIR","ENOENT"]`},
	{"a large file", `const b = new Uint8Array(10 << 20).fill(7); b[b.length - 1] = 8; await fs.writeFile("large", b); const back = await fs.readFile("large"); return [back.length, back[0], back.at(-1)]`, `[10485760,7,8]`},
	{"folders", `await fs.mkdir("a/b/c", { recursive: true }); await fs.mkdir("a/b/c", { recursive: true }); await fs.mkdir("/workspace/d/"); await fs.writeFile("a/b/f", "f"); return fs.readdir("a", { recursive: true })`, `["b","b/c","b/f"]`},
	{"removed", `await fs.rm("sub", { recursive: true }); await fs.rm("back"); await fs.unlink("empty"); await fs.rm("many/", { recursive: true, force: true }); await fs.mkdir("e"); await fs.rmdir("e"); return fs.readdir(".")`, `["bytes","mark.txt","table.csv","ü"]`},
	{"a link that is removed", `await fs.rm("back", { recursive: true }); return fs.readdir("sub")`, `["a","deep.txt"]`},
	{"not removed", failing(`fs.rmdir("sub")`, `fs.unlink("sub")`, `fs.rmdir("table.csv")`, `fs.rm("back/", { recursive: true })`, `fs.rename("sub", "sub/a/b")`, `fs.rename("table.csv", "sub")`, `fs.rename("sub", "many")`, `fs.rename("/workspace", "/other")`, `fs.rename("table.csv", "/data/in/x")`), `["ENOTEMPTY","EISDIR","ENOTDIR","ENOTDIR","EINVAL","EISDIR","ENOTEMPTY","EROFS","EXDEV"]`},
	{"renamed", `await fs.rename("table.csv", "sub/t.csv"); await fs.rename("sub", "moved"); return [await fs.readFile("moved/t.csv", "utf8"), await fs.readdir("moved"), await fs.access("sub").catch((e) => e.code)]`, `["n,x\n1,a\n2,b\n",["a","deep.txt","t.csv"],"ENOENT"]`},
	{"not copied over another", `await fs.writeFile("c", "kept"); try { await fs.copyFile("/data/in/a.txt", "c", 1) } catch (e) { return [e.code, await fs.readFile("c", "utf8")] }`, `["EEXIST","kept"]`},
	{"copied", `await fs.copyFile("/data/in/a.txt", "a.txt"); return fs.readFile("a.txt", "utf8")`, `"given"`},
	{"too large", `const b = new Uint8Array(30 << 20); for (let i = 0; i < 10; i++) await fs.writeFile("f" + i, b)`, "ENOSPC: no space left on device, write 'f8'"},
	{"times", `await fs.writeFile("a", "x"); await fs.writeFile("b", "x"); const [a, b] = [await fs.stat("a"), await fs.stat("b")]; return [b.mtimeMs > a.mtimeMs, a.mtimeMs % 1000, a.mtime.getFullYear()]`, `[true,0,2000]`},
}

// withoutFiles are programs of a call that is given none.
var withoutFiles = []struct{ name, code, want string }{
	{"codes", failing(`fs.readFile("x")`, `fs.readdir(".")`, `fs.readdir("/")`, `fs.stat("/workspace")`, `fs.writeFile("x", "x")`, `fs.mkdir("x", { recursive: true })`, `fs.rm("x")`, `fs.rename("x", "y")`), `["ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT","ENOENT"]`},
	{"a message", `return fs.readFile("x")`, "ENOENT: no such file or directory, open 'x' (there are no files; run --dir gives some)"},
	{"nothing of Node beside it", `return typeof require + typeof process`, `"undefinedundefined"`},
}

// TestFilesOfACall runs programs of run_js with files. Each ends the same way in a process of its own and
// in replays by all engines, after the folders are gone.
func TestFilesOfACall(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: replays by all engines")
	}
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "files.db"), starling.Options{}))
	defer db.Close()
	apart := starling.Over(starling.Must(db.Log(t.Context())), starling.Options{Engine: starling.EngineOptions{Processes: true}})
	defer apart.Close()
	folder, in := t.TempDir(), t.TempDir()
	var bytes [512]byte
	for i := range bytes {
		bytes[i] = byte(i)
	}
	given := map[string]string{
		"workspace/table.csv": "n,x\n1,a\n2,b\n", "workspace/sub/deep.txt": "deep", "workspace/sub/a/f": "f", "workspace/ü/😀.txt": "grüße",
		"workspace/mark.txt": "\ufeffx", "workspace/bytes": string(bytes[:]), "workspace/empty": "",
	}
	for i := range 600 { // more than one answer of the host has
		given[fmt.Sprintf("workspace/many/file-%03d", i)] = "x"
	}
	write := func(root string, files map[string]string) {
		for name, text := range files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(folder, given)
	write(in, map[string]string{"a.txt": "given", "large": strings.Repeat("x", 10<<20-3) + "end"})
	if err := os.Symlink("sub", filepath.Join(folder, "workspace", "back")); err != nil {
		t.Fatal(err)
	}
	mount := func(writable bool) *starling.Files {
		files, err := db.Files(t.Context(), starling.Folder{Path: filepath.Join(folder, "workspace"), Writable: writable}, starling.Folder{Path: in, At: "/data/in"})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	reading, writing := mount(false), mount(true)
	for _, path := range []string{folder, in} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	load := func(db *starling.DB) *starling.Tool {
		tool, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return tool
	}
	here, there := load(db), load(apart)
	if !here.FindsFiles() || !there.FindsFiles() {
		t.Error("run_js does not find files")
	}
	replayers := map[starling.EngineKind]*starling.Replayer{}
	for _, kind := range []starling.EngineKind{starling.Compiler, starling.Machine, starling.Interpreter} {
		r, err := db.Replayer(t.Context(), starling.ReplayOptions{Engine: starling.EngineOptions{Kind: kind}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		replayers[kind] = r
	}
	programs := func(group string, files *starling.Files, list []struct{ name, code, want string }) {
		for _, p := range list {
			t.Run(group+"/"+p.name, func(t *testing.T) {
				input, err := json.Marshal(map[string]any{"code": p.code})
				if err != nil {
					t.Fatal(err)
				}
				run, err := here.In(files).Call(t.Context(), string(input))
				if run == nil {
					t.Fatal(err)
				}
				if got := run.Output(); got != p.want && !strings.Contains(reason(run), p.want) {
					t.Errorf("got %s (%v), want %s", got, err, p.want)
				}
				again, err := there.In(files).Call(t.Context(), string(input))
				if again == nil {
					t.Fatal(err)
				}
				if again.Output() != run.Output() || reason(again) != reason(run) || again.Workspace != run.Workspace || again.Meter.Fuel != run.Meter.Fuel {
					t.Errorf("in a process: %s %s, %d units of fuel; here %d", again.Output(), reason(again), again.Meter.Fuel, run.Meter.Fuel)
				}
				for kind, r := range replayers {
					if strings.Contains(p.name, "large") && kind != starling.Compiler {
						continue // takes seconds
					}
					if verdict, err := r.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
						t.Errorf("replay by the %s: %v, %v", kind, verdict, err)
					}
				}
			})
		}
	}
	programs("reading", reading, filePrograms)
	programs("writing", writing, writingPrograms)
	programs("without", nil, withoutFiles)
}

// TestFilesOfATool: a tool in JavaScript finds files if it imports fs, and its module imports nothing of them otherwise.
func TestFilesOfATool(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "files.db"), starling.Options{}))
	defer db.Close()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.txt"), []byte("given"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := db.Files(t.Context(), starling.Folder{Path: folder, Writable: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		source, want string
		finds        bool
	}{
		{`import { fs } from "starling"; export default { name: "x", async execute() { await fs.appendFile("a.txt", " more"); return fs.readFile("a.txt", "utf8"); } };`, `"given more"`, true},
		{`export default { name: "x", execute: () => typeof fs };`, `"undefined"`, false},
		{`import * as s from "starling"; export default { name: "x", execute: () => s["f" + "s"].readdir(".").catch((e) => e.message) };`, `"the module was built without fs, as its source does not name it"`, false},
		{`import { fs } from "starling"; let said; fs.readdir(".").catch((e) => { said = e.message; }); export default { name: "x", execute: () => said };`, `"the file system is not there while a tool starts up: move it into execute"`, true},
	} {
		source := filepath.Join(t.TempDir(), "x.js")
		if err := os.WriteFile(source, []byte(c.source), 0o600); err != nil {
			t.Fatal(err)
		}
		tool, err := db.Load(t.Context(), source, starling.ToolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if tool.FindsFiles() != c.finds {
			t.Errorf("%s finds files: %v", c.source, tool.FindsFiles())
		}
		run, err := tool.In(files).Call(t.Context(), `{}`)
		if err != nil || run.Output() != c.want {
			t.Errorf("%s: %s (%v), want %s", c.source, run.Output(), err, c.want)
		}
		if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
			t.Errorf("%s: replay: %v, %v", c.source, verdict, err)
		}
	}
}
