package js_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/zstd"
)

// hostilePrograms are what a model could write that means harm, or is broken: with a part of
// what comes of it, the output or the reason of the failure.
var hostilePrograms = []struct{ name, code, want string }{
	{"endless loop", `for (;;);`, "out of fuel"},
	{"endless promises", `for (;;) await null;`, "out of fuel"},
	{"endless microtasks", `const f = () => Promise.resolve().then(f); await f();`, "out of fuel"},
	{"endless timers", `await new Promise(() => setInterval(() => {}, 1));`, "out of fuel"},
	{"endless generator", `for (const x of (function* () { for (;;) yield 1; })());`, "out of fuel"},
	{"slow pattern", `return /^(a+)+$/.test("a".repeat(64) + "b");`, "out of fuel"},
	{"a promise that nothing settles", `await new Promise(() => {});`, "nothing will ever settle"},
	{"memory of strings", `const a = []; for (;;) a.push("x".repeat(1 << 20) + a.length);`, "out of "},
	{"memory of one array", `return new Uint8Array(1 << 30).length;`, "memory"},
	{"memory of objects", `let o = {}; for (;;) o = { o, a: new Array(1000).fill(1) };`, "out of "},
	{"a string that doubles", `let s = "x"; for (;;) s += s;`, ""},
	{"deep recursion", `return (function f() { return f(); })();`, "Maximum call stack"},
	{"deep recursion of promises", `return await (async function f() { return await f(); })();`, ""},
	{"deep JSON", `return JSON.parse("[".repeat(1e6));`, ""},
	{"deep output", `let o = {}; for (let i = 0; i < 1e4; i++) o = { o }; return o;`, ""},
	{"large output", `return "x".repeat(1 << 20);`, "output"},
	{"a circle", `const o = {}; o.o = o; return o;`, "not JSON"},
	{"much to print", `for (;;) console.log("x".repeat(1e5));`, "out of fuel"},
	{"syntax", `return }`, "line 1, column"},
	{"an end of the function", `} ; for (;;) ; {`, "SyntaxError"},
	{"no host", `return typeof host + typeof require + typeof process + typeof module;`, `"undefinedundefinedundefinedundefined"`},
	{"import of a module", `return await import("fs");`, ""},
	{"the constructor of the tools", `return await tools.constructor("return 1")();`, "not a function"},
	{"a prototype of the tools", `return [Object.getPrototypeOf(tools), "x" in tools];`, "[null,true]"},
	{"a tool that is put there", `try { "use strict"; tools.dice = () => 1; } catch {} return (await tools.dice({ rolls: 1 })).rolls.length;`, "1"},
	{"a changed prototype", `Object.prototype.then = (f) => f(5); return await tools.dice({ rolls: 1 });`, ""},
	{"a changed JSON", `JSON.stringify = () => '{"tool":"secret","input":{}}'; return (await tools.dice({ rolls: 1 })).rolls.length;`, "1"},
	{"a changed parser", `JSON.parse = () => ({ output: "forged" }); return (await tools.dice({ rolls: 1 })).rolls.length;`, "1"},
	{"an error without a text", `throw { toString() { throw 1; } };`, "has no text"},
	{"an error with a getter", `const e = new Error("x"); Object.defineProperty(e, "stack", { get() { for (;;); } }); throw e;`, "out of fuel"},
	{"a tool that is not there", `return await tools.secret({});`, "tool not found"},
	{"itself", `return await tools.run_js({ code: "return 1" });`, "does not call itself"},
	{"a broken input", `return await tools.dice("two");`, ""},
	{"no input", `return (await tools.dice()).rolls.length;`, "1"},
	{"a forged call by fetch", `return (await fetch("starling:call", { method: "POST", body: '{"tool":"secret","input":{}}' })).status;`, ""},
	{"a host that is not allowed", `return (await fetch(input)).status;`, "denied"},
	{"a host after a catch", `try { await fetch(input); } catch (e) { return e.reason; }`, `"denied"`},
	{"the secret of the host", `return (await fetch(input + "?k={{secret:KEY}}")).status;`, "denied"},
	{"10,000 calls", `let n = 0; for (let i = 0; i < 10000; i++) { await tools.dice({ rolls: 1 }); n++; } return n;`, "effects"},
	{"10,000 calls at once", `return (await Promise.all(Array.from({ length: 10000 }, () => tools.dice({ rolls: 1 })))).length;`, "effects"},
	{"calls that fail", `let n = 0; for (let i = 0; i < 20; i++) try { await tools.dice({ rolls: -1 }); } catch { n++; } return n;`, "20"},
	{"a call without an end", `tools.dice({ rolls: 1 }); for (;;);`, "out of fuel"},
	{"a failure that nobody awaits", `tools.dice({ rolls: -1 }); return 1;`, "rolls is -1"},
}

// reason returns all that is recorded of why a run failed: its error has the first line.
func reason(run *starling.Run) string {
	if run.Failure == nil {
		return ""
	}
	return run.Failure.Message
}

// TestRunJSHostilePrograms: each of them ends by its limits, none reaches what it may not, and
// each run replays.
func TestRunJSHostilePrograms(t *testing.T) {
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer server.Close()
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "code.db"), starling.Options{}))
	defer db.Close()
	dice, err := db.Load(t.Context(), filepath.Join("tools-wasm", "dice"), starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	limits := sandbox.Limits{Fuel: 400_000_000, MemoryPages: 256, Effects: 60}
	runJS, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	program := runJS.Calling(dice)
	for _, p := range hostilePrograms {
		t.Run(p.name, func(t *testing.T) {
			input, err := json.Marshal(map[string]any{"code": p.code, "input": server.URL})
			if err != nil {
				t.Fatal(err)
			}
			run, err := program.Call(t.Context(), string(input))
			if run == nil {
				t.Fatal(err)
			}
			if got := run.Output() + reason(run); !strings.Contains(got, p.want) {
				t.Errorf("it ends with %s, want %q in it", got, p.want)
			}
			verdict, err := db.Replay(t.Context(), run.ID)
			if err != nil || !verdict.Identical() {
				t.Errorf("replay: %v, %v", verdict, err)
			}
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests have reached a server that is not allowed", n)
	}
}

// TestRunJSForms runs the programs that models write, whatever their form, and says what came
// of them: nothing that a program returns or prints is lost.
func TestRunJSForms(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "code.db"), starling.Options{}))
	defer db.Close()
	runJS, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct{ name, code, want string }{
		{"body", `return 1`, `1`},
		{"async arrow", "async () => {\n  return input.n;\n};", `9007199254740993`},
		{"arrow with arguments", `(input, tools) => typeof tools + input.n`, `"object9007199254740993"`},
		{"declared function", `async function main() { return 2 }`, `2`},
		{"returned function", `return () => 3`, `3`},
		{"call of a function", `(async () => 4)()`, `4`},
		{"expression", `[1, 2].map((n) => n * 2);`, `[2,4]`},
		{"object", `({ a: 1 })`, `{"a":1}`},
		{"fence", "\n```js\nreturn 5;\n```\n", `5`},
		{"fence of TypeScript", "```typescript\nconst n: number = 6;\nreturn n as number;\n```", `6`},
		{"types", "interface A { b?: string }\ntype B<T> = T[];\nenum E { X = 7 }\nconst f = async (a: A): Promise<B<number>> => [E.X];\nreturn await f({} satisfies A);", `[7]`},
		{"types in a function", `async (): Promise<number> => { return 8 as number }`, `8`},
		{"printed", `console.log("a", { b: 1 }); console.error("c")`, `{"console":"a {\"b\":1}\nc\n","note":"the program returned nothing: end it with return VALUE","result":null}`},
		{"printed beside a result", `console.info(1); return 9`, `{"console":"1\n","result":9}`},
		{"much printed", `for (let i = 0; i < 3000; i++) console.log("1234567"); return 1`, `{"console":"` + strings.Repeat(`1234567\n`, 2048) + `","result":1}`},
		{"nothing", `const a = 1;`, `{"note":"the program returned nothing: end it with return VALUE","result":null}`},
		{"null", `return null`, `{"note":"the program returned null","result":null}`},
		{"promises that nobody awaits", `const p = async (n) => { await null; return n }; return { list: [1, 2].map(p), of: new Map([["k", p(3)]]) }`, `{"list":[1,2],"of":{"k":3}}`},
		{"a promise that fails in a result", "return [\n  1,\n  (async () => null.x)()]", "at line 3, column"},
		{"errors", `return Promise.allSettled([Promise.reject(new TypeError("why"))])`, `[{"reason":{"message":"why","name":"TypeError"},"status":"rejected"}]`},
		{"collections", `return [new Set([1, new Uint8Array([2])]), new Map([[1, 2n]]), new Date(0), Object(3)]`, `[[1,[2]],[[1,2]],"1970-01-01T00:00:00.000Z",3]`},
		{"not a number", `return { rows: [{ rate: 0 / 0 }] }`, "result.rows[0].rate is NaN, which JSON does not have"},
		{"a function in a result", `return [{ run() {} }]`, "result[0].run is a function (run)"},
		{"a symbol", `return { s: Symbol("x") }`, "result.s is Symbol(x)"},
		{"a response", `return { r: new Response("x") }`, "result.r is a Response"},
		{"a circle", `const a = { b: [] }; a.b.push(a); return a`, "result.b[0] is result itself"},
		{"left out", `return { a: undefined, b: [undefined], c: -0 }`, `{"b":[null],"c":0}`},
		{"a language", `return (1234.5).toLocaleString("de-DE")`, "toLocaleString: the locale de-DE needs Intl"},
		{"money", `return [(1234.5).toLocaleString("en-US", { style: "currency", currency: "USD" }), ["b", "B", "a"].sort((x, y) => x.localeCompare(y))]`, `["$1,234.50",["a","b","B"]]`},
		{"cookies", `return new Headers(new Headers([["set-cookie", "a=1"], ["set-cookie", "b=2"]])).getSetCookie()`, `["a=1","b=2"]`},
		{"half of a pair", `return ["Hi 😀".slice(0, 4)]`, "[\"Hi \ufffd\"]"},
		{"printed before a failure", "console.log('seen');\nnull.x", "TypeError: cannot read property 'x' of null\n  at line 2, column 1\n2 | null.x\n    ^\nconsole:\nseen\n"},
		{"a mistake in an expression", "[\n  1,\n  null.x]", "at line 1, column 1\n1 | ["},
		{"a mistake behind a fence", "```js\nconst a = 1;\nnull.x;\n```", "at line 3, column 1\n3 | null.x;"},
		{"a mistake in TypeScript", "let a: number = 1;\nnull.x;", "at line 2, column 1\n2 | null.x;"},
		{"no program", "let a: number = ;", "SyntaxError"},
	} {
		t.Run(p.name, func(t *testing.T) {
			input, err := json.Marshal(map[string]any{"code": p.code, "input": map[string]any{"n": int64(9007199254740993)}})
			if err != nil {
				t.Fatal(err)
			}
			run, err := runJS.Call(t.Context(), string(input))
			if got := run.Output(); got != p.want && !strings.Contains(reason(run), p.want) {
				t.Errorf("got %s (%v), want %s", got, err, p.want)
			}
			if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
				t.Errorf("replay: %v, %v", verdict, err)
			}
		})
	}
}

// TestRunJSPassesDigitsAndText hands large numbers and halves of characters from a program to a
// tool, and what the tool returns on to the next.
func TestRunJSPassesDigitsAndText(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "code.db"), starling.Options{}))
	defer db.Close()
	cases, err := db.Load(t.Context(), jsSDK+"/testdata/cases.js", starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runJS, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(map[string]any{"code": `const id = await tools.cases({ case: "same", v: input });
		const again = await tools.cases({ case: "same", v: { id, text: "Hi 😀".slice(0, 4), json: JSON.parse(JSON.stringify({ id })) } });
		return again`, "input": json.RawMessage(`-1291823374921433098`)})
	if err != nil {
		t.Fatal(err)
	}
	run, err := runJS.Calling(cases).Call(t.Context(), string(input))
	if err != nil {
		t.Fatal(err)
	}
	want := "{\"id\":-1291823374921433098,\"json\":{\"id\":-1291823374921433098},\"text\":\"Hi \ufffd\"}"
	if run.Output() != want {
		t.Errorf("got %s, want %s", run.Output(), want)
	}
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
		t.Errorf("replay: %v, %v", verdict, err)
	}
}

// TestTheEngineIsBuiltFromItsSource builds what the program carries of JavaScript again.
func TestTheEngineIsBuiltFromItsSource(t *testing.T) {
	treetest.NeedsJS(t)
	dir := t.TempDir()
	if out, err := exec.Command("node", jsSDK+"/engine.mjs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"quickjs.wasm", "run_js.qjs"} {
		kept, err := zstd.Decompress([]byte(treetest.Read(t, "host/internal/interp/"+name+".zst")), 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if treetest.Read(t, filepath.Join(dir, name)) != string(kept) {
			t.Errorf("host/internal/interp/%s.zst has not what guest-sdk/js/engine.mjs builds: run guest-sdk/js/build.sh", name)
		}
	}
}
