package js_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
)

func TestMain(m *testing.M) {
	guest.WorkerMain()
	treetest.Run(m)
}

const jsSDK = "guest-sdk/js"

// maxJS is what guest-sdk/js/README.md promises of a small tool.
const maxJS = 725_000

// jsWorld is the outside of a tool.
type jsWorld struct {
	requests []string
	answer   string
	status   abi.Status
	took     time.Duration // by each exchange
}

func (*jsWorld) Now(context.Context) int64     { return 1_767_323_045_678_000_000 }
func (*jsWorld) Random(context.Context) uint64 { return 1<<63 + 5 }
func (*jsWorld) Seed(context.Context) [32]byte { return [32]byte{1} }
func (w *jsWorld) HTTP(_ context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	w.requests = append(w.requests, string(request))
	return []byte(w.answer), w.status, w.took
}

// engine is for what one engine can show. All tools with the same imports have the same code.
var engine = sync.OnceValue(func() *sandbox.Engine {
	engine, err := sandbox.New(context.Background(), sandbox.Config{CacheDir: starling.CodeCacheFolder()})
	if err != nil {
		panic(err)
	}
	return engine
})

// build returns the module of a tool, or why it cannot be built or loaded.
func build(t *testing.T, source string) (wasm []byte, said string) {
	t.Helper()
	module, err := guest.Find(t.Context(), source)
	if err == nil {
		_, err = guest.Load(t.Context(), guest.Inline(engine()), module.Wasm, guest.Options{})
	}
	if err != nil {
		return nil, err.Error()
	}
	return module.Wasm, ""
}

// called returns what a call of the tool x of a module returns, or why there is no module.
func called(t *testing.T, source string, world *jsWorld) string {
	t.Helper()
	wasm, said := build(t, source)
	if wasm == nil {
		return said
	}
	m, err := engine().Load(t.Context(), wasm, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Call(t.Context(), sandbox.Call{Tool: "x", Input: []byte(
		`{"tool":"x","input":{},"context":{"run_id":"r","call_id":"c","attempt":1}}`)}, world)
	if err != nil {
		t.Fatal(err)
	}
	return string(got.Output)
}

// TestJavaScriptFuelWithoutIDs: a call costs the same whatever its run and the call are named, and reads
// large integers wherever they are.
func TestJavaScriptFuelWithoutIDs(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "x.js")
	if err := os.WriteFile(source, []byte("export default { name: 'x', execute(input, { variables }) { return [input, variables]; } };"), 0o600); err != nil {
		t.Fatal(err)
	}
	wasm, said := build(t, source)
	if wasm == nil {
		t.Fatal(said)
	}
	m, err := engine().Load(t.Context(), wasm, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	const large = "12345678901234567890123"
	for _, input := range []string{`{}`, `{"a":"0123456789012345678901234567890123456789"}`, `{"a":` + large + `}`, `{"run_id":"","call_id":"` + strings.Repeat("7", 40) + `"}`} {
		for _, variables := range []string{`{}`, `{"v":` + large + `}`, `{"context":{"run_id":"r","n":` + large + `}}`} {
			var fuel uint64
			for i, id := range []string{"01M8JEDA4J9ZFVWJE727XRMT41", strings.Repeat("7", 26), strings.Repeat("Z", 26), "Z0000000000000000ZZZZZZZZZ", "ZZZZZZZZZZ1111111111111111"} {
				call := strings.Repeat(string(id[25]), 20) + id[:6]
				got, err := m.Call(t.Context(), sandbox.Call{Tool: "x", Input: []byte(
					`{"tool":"x","input":` + input + `,"context":{"run_id":"` + id + `","call_id":"` + call + `","attempt":1,"variables":` + variables + `}}`)}, &jsWorld{})
				if err != nil {
					t.Fatal(err)
				}
				if want := `{"output":[` + input + `,` + variables + `]}`; string(got.Output) != want {
					t.Errorf("got %s, want %s", got.Output, want)
				}
				if i > 0 && got.Meter.Fuel != fuel {
					t.Errorf("input %s, variables %s, run %s: %d fuel, and %d before", input, variables, id, got.Meter.Fuel, fuel)
				}
				fuel = got.Meter.Fuel
			}
		}
	}
}

func loadJS(t *testing.T, wasm []byte, config sandbox.Config) *sandbox.Module {
	t.Helper()
	engine, err := sandbox.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	m, err := engine.Load(t.Context(), wasm, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestJavaScript checks what guest-sdk/js/README.md says that a tool can do, and that it
// does the same, at the same price, on both engines.
func TestJavaScript(t *testing.T) {
	wasm, said := build(t, jsSDK+"/testdata/cases.js")
	if wasm == nil || len(wasm) > maxJS {
		t.Fatalf("%d bytes, the limit is %d: %s", len(wasm), maxJS, said)
	}
	modules := map[string]*sandbox.Module{}
	for name, config := range map[string]sandbox.Config{"compiler": {}, "machine": {Machine: true}} {
		modules[name] = loadJS(t, wasm, config)
	}
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 8\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n" + `{"b":"` + "ö" + `"}`
	large := "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("\xff", 100_000)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, strings.Repeat("hello ", 2000))
	z.Close()
	compressed := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.Bytes())
	unpacked := func(format string, writer func(io.Writer) io.WriteCloser) string {
		var packed bytes.Buffer
		z := writer(&packed)
		_, _ = io.WriteString(z, strings.Repeat("hello ", 2000))
		z.Close()
		return `"format":"` + format + `","packed":"` + base64.StdEncoding.EncodeToString(packed.Bytes()) + `"`
	}
	const whole = `{"output":[12000,"hello hello ",true,"TypeError",1]}`
	for _, c := range []struct {
		name, input, want string
		world             jsWorld
		request           string
	}{
		{name: "unpacked", want: whole, input: unpacked("gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })},
		{name: "unpacked", want: whole, input: unpacked("deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })},
		{name: "unpacked", want: whole, input: unpacked("deflate-raw", func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 6); return z })},
		{name: "unpacked", input: `"format":"br","packed":""`, want: `{"error":{"kind":"tool","message":"TypeError: DecompressionStream knows gzip, deflate, deflate-raw, and not br at unpacked (cases.js:82:85)"}}`},
		{name: "nothing", want: `{"output":null}`},
		{name: "call", want: `{"output":{"runId":"r","callId":"c","attempt":3,"variables":{"team":"a"}}}`},
		{name: "numbers", input: `"n":1.0`, want: `{"output":[1,true]}`},
		{name: "text", input: `"text":"é\u0000😀"`, want: `{"output":["é\u0000😀",4,[195,169,0,240,159,152,128],"é\u0000😀"]}`},
		{name: "imports", want: `{"output":[1767323045678,"9223372036854775813",1767323045678,"2026-01-02T03:04:05.678Z",true,36]}`},
		{name: "virtual", want: `{"output":60}`},
		{name: "fresh", want: `{"output":1}`},
		{name: "error", want: `{"error":{"kind":"tool","message":"no such city"}}`},
		{name: "mistake", want: `{"error":{"kind":"tool","message":"TypeError: cannot read property 'city' of undefined at mistake (cases.js:26)"}}`},
		{name: "string", want: `{"error":{"kind":"tool","message":"a text"}}`},
		{name: "transient", want: `{"error":{"kind":"transient","message":"busy"}}`},
		{name: "cancel", want: `{"error":{"kind":"cancel","message":"not for you"}}`},
		{name: "discard", want: `{"error":{"kind":"discard","message":"never"}}`},
		{name: "snooze", want: `{"error":{"kind":"snooze","message":"later","retry_after_ms":1500}}`},
		{name: "pending", want: `{"error":{"kind":"tool","message":"execute waits for a promise that nothing will ever settle"}}`},
		{name: "timers", want: `{"output":[250,true,3]}`},
		{name: "made", want: `{"error":{"kind":"tool","message":"TypeError: ours at made (cases.js:43:93)"}}`},
		{name: "several", want: `{"error":{"kind":"tool","message":"AggregateError: Error: one; Error: two"}}`},
		{name: "mute", want: `{"error":{"kind":"tool","message":"something was thrown that has no text"}}`},
		{name: "timer", want: `{"error":{"kind":"tool","message":"in a timer"}}`},
		{name: "microtask", want: `{"error":{"kind":"tool","message":"in a microtask"}}`},
		{name: "forgotten", want: `{"error":{"kind":"tool","message":"TypeError: lost at lose (cases.js:7:53)"}}`},
		{name: "beside", want: `{"error":{"kind":"transient","message":"not kept"}}`},
		{name: "awaited", want: `{"output":["caught","first",["fulfilled","rejected"]]}`},
		{name: "thrown", want: `{"error":{"kind":"tool","message":"{\"code\":7}"}}`},
		{name: "circle", want: `{"error":{"kind":"tool","message":"output.a is output itself, a circular reference: not JSON"}}`},
		{name: "deep", want: `{"error":{"kind":"tool","message":"RangeError: Maximum call stack size exceeded at f (cases.js:57:33)"}}`},
		{name: "get", world: jsWorld{answer: ok}, want: `{"output":[200,true,"1, 2","{\"b\":\"ö\"}"]}`,
			request: "GET http://h/a%20b?q=%C3%A4 HTTP/1.1\r\naccept: text/plain\r\nstarling-effect: look\r\n\r\n"},
		{name: "post", world: jsWorld{answer: ok}, want: `{"output":{"b":"ö"}}`,
			request: "POST http://h/ HTTP/1.1\r\ncontent-length: 10\r\ncontent-type: text/plain;charset=UTF-8\r\n\r\n" + `{"a":"ä"}`},
		{name: "form", world: jsWorld{answer: ok}, want: `{"output":200}`,
			request: "PUT http://h/ HTTP/1.1\r\ncontent-length: 11\r\ncontent-type: application/x-www-form-urlencoded;charset=UTF-8\r\n\r\na=1+2&b=%26"},
		{name: "text of it", world: jsWorld{answer: compressed}, want: `{"output":["gzip",12000,"hello hello "]}`, request: "GET http://h/ HTTP/1.1\r\n\r\n"},
		{name: "text of it", world: jsWorld{answer: strings.Replace(compressed, "gzip", "br", 1)}, request: "GET http://h/ HTTP/1.1\r\n\r\n",
			want: `{"error":{"kind":"tool","message":"TypeError: the response has the content coding br, which a tool cannot undo: ask for gzip with the header Accept-Encoding at text of it (cases.js:65:47)"}}`},
		{name: "large", world: jsWorld{answer: large}, want: `{"output":100000}`, request: "GET http://h/ HTTP/1.1\r\n\r\n"},
		{name: "caught", world: jsWorld{answer: "no rule", status: abi.StatusDenied},
			want: `{"output":["HTTPError","denied","http: denied: no rule"]}`, request: "GET http://h/ HTTP/1.1\r\n\r\n"},
		{name: "uncaught", world: jsWorld{answer: "no rule", status: abi.StatusDenied},
			want: `{"error":{"kind":"cancel","message":"http: denied: no rule"}}`, request: "GET http://h/ HTTP/1.1\r\n\r\n"},
		{name: "uncaught", world: jsWorld{answer: "gone", status: abi.StatusNetwork},
			want: `{"error":{"kind":"transient","message":"http: network: gone"}}`, request: "GET http://h/ HTTP/1.1\r\n\r\n"},
		{name: "request", world: jsWorld{answer: ok}, want: `{"output":[200,"application/json",true,"AbortError"]}`,
			request: "POST http://h/ HTTP/1.1\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"},
		{name: "inject", want: `{"error":{"kind":"tool","message":"TypeError: the header A holds a control character at inject (cases.js:69:17)"}}`},
		{name: "digits", input: `"n":9007199254740993`, want: `{"output":[9007199254740993,"bigint","number",{"n":-9007199254740994},[123456789012345678901234567890,1.5,12],` +
			`"{\"n\":9007199254740993}",{"n":9007199254740993},["99999999999999999999",[9007199254740993,"1"]],9007199254740991]}`},
		{name: "halves", input: `"text":"Hi 😀"`, want: "{\"output\":{\"Hi \ufffd\":[\"Hi \ufffd\",\"\ufffd\",\"\\\\ud800\"]}}"},
		{name: "halfError", input: `"text":"Hi 😀"`, want: "{\"error\":{\"kind\":\"tool\",\"message\":\"Hi \ufffd\"}}"},
		{name: "address", want: `{"output":["http://h/p/a%20b?q#h","http://o/y","http://h/p/q/r?x=1","https://u/"]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fuel uint64
			for _, engine := range []string{"compiler", "machine"} {
				w := c.world
				input := strings.TrimSuffix(`{"case":"`+c.name+`",`+c.input, ",") + "}"
				got, err := modules[engine].Call(t.Context(), sandbox.Call{Tool: "cases", Input: []byte(
					`{"tool":"cases","input":` + input + `,"context":{"run_id":"r","call_id":"c","attempt":3,"variables":{"team":"a"}}}`)}, &w)
				if err != nil || string(got.Output) != c.want {
					t.Errorf("%s: got  %s (%v)\nwant %s", engine, got.Output, err, c.want)
				}
				if request := strings.Join(w.requests, "\n"); request != c.request {
					t.Errorf("%s: got request %q, want %q", engine, request, c.request)
				}
				if fuel != 0 && got.Meter.Fuel != fuel {
					t.Errorf("the compiler spent %d, the %s %d", fuel, engine, got.Meter.Fuel)
				}
				fuel = got.Meter.Fuel
			}
		})
	}
	got, err := modules["compiler"].Call(t.Context(), sandbox.Call{Tool: "cases", Input: []byte(
		`{"tool":"cases","input":{"case":"log"},"context":{"run_id":"r","call_id":"c","attempt":1}}`)}, &jsWorld{})
	if want := "a {\"b\":1}\nError: c\n    at log (cases.js:22:62)\n    at execute (cases.js:94:84)\n\n" +
		"d: 5% [[\"1n\",[null]]] {\"e\":\"Error: f\",\"g\":\"Symbol(h)\"} 1n Error: i\n    at log (cases.js:23:124)\n    at execute (cases.js:94:84)\n    caused by 1\n"; err != nil || string(got.Meter.Log) != want {
		t.Errorf("the log is %q (%v), want %q", got.Meter.Log, err, want)
	}
}

// TestJavaScriptTime: an exchange takes its time on the clock of a tool, timers that are due before its
// end fire first, and exchanges are made one after another, whether a tool awaits them or not.
func TestJavaScriptTime(t *testing.T) {
	wasm, said := build(t, jsSDK+"/testdata/time.js")
	if wasm == nil {
		t.Fatal(said)
	}
	modules := map[string]*sandbox.Module{}
	for name, config := range map[string]sandbox.Config{"compiler": {}, "machine": {Machine: true}} {
		modules[name] = loadJS(t, wasm, config)
	}
	for _, c := range []struct {
		name, fast, slow string // the output if an exchange takes no time, and if it takes three seconds
		requests         int
	}{
		{"measured", `[0,700,0]`, `[3000,700,0]`, 1},
		{"dates", `0`, `3000`, 1},
		{"together", `[0,0,0]`, `[3000,6000,9000]`, 3},
		{"signal", `[204,204]`, `["TimeoutError","TimeoutError"]`, 2},
		{"any", `204`, `"TimeoutError"`, 1},
		{"race", `["exchange","exchange","exchange"]`, `["timer","timer","exchange"]`, 3},
		{"controller", `204`, `"AbortError"`, 1},
		{"order", `["exchange",100,900,2000,4000]`, `[100,900,2000,"exchange",4000]`, 1},
		{"interval", `0`, `12`, 1},
		{"cancelled", `["AbortError",204]`, `["AbortError",204]`, 1},
		{"forgotten", `1`, `1`, 2},
		{"chained", `[204,204]`, `[204,204]`, 2},
	} {
		for name, m := range modules {
			for took, want := range map[time.Duration]string{0: c.fast, 3 * time.Second: c.slow} {
				w := &jsWorld{answer: "HTTP/1.1 204 No Content\r\n\r\n", took: took}
				got, err := m.Call(t.Context(), sandbox.Call{Tool: "cases", Input: []byte(
					`{"tool":"cases","input":{"case":"` + c.name + `"},"context":{"run_id":"r","call_id":"c","attempt":1}}`)}, w)
				if err != nil || string(got.Output) != `{"output":`+want+`}` || len(w.requests) != c.requests {
					t.Errorf("%s, %s: exchanges of %v: got %s after %d requests (%v), want %s after %d", name, c.name, took, got.Output, len(w.requests), err, want, c.requests)
				}
				for _, request := range w.requests {
					if limited := strings.Contains(request, "\r\nstarling-timeout: "); limited != (c.name == "signal" || c.name == "any") {
						t.Errorf("%s: request %q", c.name, request)
					}
				}
			}
		}
	}
}

// TestJavaScriptLikeNode compares what tools have of the Web's interfaces with what Node has.
func TestJavaScriptLikeNode(t *testing.T) {
	treetest.NeedsJS(t)
	for _, file := range []string{"url.mjs", "web.mjs", "inflate.mjs", "locale.mjs", "plain.mjs"} {
		if out, err := exec.Command("node", jsSDK+"/testdata/"+file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestTypes checks starling.d.ts, the examples and the templates with the compiler of TypeScript.
func TestTypes(t *testing.T) {
	treetest.NeedsJS(t)
	tsc := exec.Command("sh", "-c", `node node_modules/typescript/bin/tsc --noEmit --strict --target es2023 --lib es2023,dom,dom.iterable --module esnext \
		--moduleResolution bundler --typeRoots none --allowJs --checkJs starling.d.ts testdata/types.ts examples/*/tool.[tj]s template*/tool.[tj]s`)
	tsc.Dir = jsSDK
	if out, err := tsc.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestJavaScriptPackages builds tools with packages that are as those of npm are: with
// a form for Node and another, with a look at the clock while they are loaded, or large.
func TestJavaScriptPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	packages := map[string]string{
		"two/package.json":  `{"main": "node.js", "browser": {"./node.js": "./web.js", "fs": false}}`,
		"two/node.js":       `module.exports = require("fs");`,
		"two/web.js":        `require("fs"); exports.form = [process.env.NODE_ENV, typeof global, typeof self];`,
		"late/package.json": `{"main": "late.js"}`,
		"late/late.js": `const began = [Date.now(), new Date().getTime(), Math.random()];
			exports.began = began; exports.now = () => Date.now(); exports.fail = () => null.x;`,
		"seed/index.js":  `crypto.getRandomValues(new Uint8Array(8));`,
		"large/index.js": `exports.text = "` + strings.Repeat("x", 700_000) + `";`,
		"code/index.js":  strings.Repeat("exports.f = function (a) { return a.b ? [a.c, 1, 'x'] : { a }; };\n", 6_000),
		"hash/index.js":  `exports.hash = async (text) => new Uint8Array(await crypto.subtle.digest("SHA-1", new TextEncoder().encode(text))).toHex();`,
		"huge/index.js":  `exports.text = "` + strings.Repeat("x", 4<<20) + `";`,
	}
	dir := t.TempDir()
	for file, text := range packages {
		treetest.Write(t, filepath.Join(dir, "node_modules", file), text)
	}
	cases := map[string]struct{ source, want string }{
		"two forms": {`import { form } from "two"; export default { name: "x", execute: () => form };`, `{"output":["production","object","object"]}`},
		"the clock while it is loaded": {`import { began, now } from "late";
			export default { name: "x", execute: () => [...began.slice(0, 2).map((ms) => new Date(ms).getUTCFullYear()), began[2] < 1, now() > began[0]] };`,
			`{"output":[2000,2000,true,true]}`},
		"a mistake in it": {`import { fail } from "late"; export default { name: "x", execute: fail };`,
			`{"error":{"kind":"tool","message":"TypeError: cannot read property 'x' of null at <anonymous> (node_modules/late/late.js:2)"}}`},
		"the clock by the tool's start-up code": {"import { now } from \"late\";\nconst x = now();\nexport default { name: \"x\", execute: () => x };",
			"the clock is not there while a tool starts up: move it into execute"},
		"a seed": {`import "seed"; export default { name: "x", execute() {} };`, "randomness is not there while a tool starts up"},
		"much": {`import { text } from "large"; export default { name: "x", execute: () => [text.length, "y".repeat(3e6).length] };`,
			`{"output":[700000,3000000]}`},
		"much code": {`import { f } from "code"; export default { name: "x", execute: () => f({ b: 1, c: 2 }) };`, `{"output":[2,1,"x"]}`},
		"crypto.subtle, named by a package": {`import { hash } from "hash"; export default { name: "x", execute: () => hash("abc") };`,
			`{"output":"a9993e364706816aba3e25717850c26c9cd0d89d"}`},
		"crypto.subtle, named by nobody": {`export default { name: "x", execute: () => typeof crypto["sub" + "tle"] };`, `{"output":"object"}`},
		"too much":                       {`import { text } from "huge"; export default { name: "x", execute: () => text.length };`, "the limit is 4194303"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join(dir, strings.ReplaceAll(name, " ", "_")+".js")
			treetest.Write(t, source, c.source)
			if got := called(t, source, &jsWorld{}); got != c.want && (strings.HasPrefix(c.want, "{") || !strings.Contains(got, c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestJavaScriptImports checks that a module imports what its source names, and
// that it can call nothing else.
func TestJavaScriptImports(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	const begin, end = `export default { name: "x", execute() { return `, ` } };`
	cases := map[string]struct {
		source, want string
		err          string
	}{
		"none":      {begin + `Date.now() + Math.random() + crypto.randomUUID()` + end, "", ""},
		"the clock": {`import { now } from "starling"; ` + begin + `now()` + end, "now", ""},
		"all":       {`import { now, random } from "starling"; ` + begin + `[now(), String(random()), fetch("http://h/").then(r => r.text())]` + end, "http now random", ""},
		"secretly":  {begin + `globalThis["fet" + "ch"]("http://h/")` + end, "", "the module was built without http"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "x.js")
			treetest.Write(t, source, c.source)
			wasm, said := build(t, source)
			gated, err := sandbox.Rewrite(t.Context(), wasm, sandbox.DefaultGateLimits(), sandbox.RewriteOptions{})
			if err != nil {
				t.Fatal(err, said)
			}
			imports := map[string][]string{}
			for _, i := range gated.Info.Imports {
				if !slices.Contains(imports[i.Module], i.Name) {
					imports[i.Module] = append(imports[i.Module], i.Name)
				}
			}
			slices.Sort(imports[abi.Version])
			slices.Sort(imports[abi.WASIModule])
			if got := strings.Join(imports[abi.Version], " "); got != c.want {
				t.Errorf("imports %q, want %q", got, c.want)
			}
			if got := strings.Join(imports[abi.WASIModule], " "); got != "clock_time_get fd_write poll_oneoff random_get" {
				t.Errorf("of WASI it imports %s", got)
			}
			got := called(t, source, &jsWorld{answer: "HTTP/1.1 200 OK\r\n\r\n"})
			if strings.Contains(got, `{"error"`) != (c.err != "") || !strings.Contains(got, c.err) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestJavaScriptBuildErrors checks what the build says of tools that cannot be.
func TestJavaScriptBuildErrors(t *testing.T) {
	const rest = ` export default { name: "x", execute() {} };`
	cases := map[string]struct{ source, want string }{
		"a syntax error":            {"export default {\n  name: 1 +; }", `x.js:2:12: Unexpected ";"`},
		"a module of Node":          {`import fs from "node:fs"; fs.x();` + rest, "a tool is not run by Node"},
		"a package that is missing": {`import x from "nope"; x();` + rest, "hint: install the package in the folder: npm install --prefix "},
		"no tool":                   {"export const x = 1;", "it exports no tool: write export default {"},
		"no execute":                {`export default { name: "x" };`, `tool "x": execute is not a function`},
		"a misspelt member":         {`export default { name: "x", inputschema: {}, execute() {} };`, "it has the member inputschema"},
		"an input that is no object": {`export default { name: "x", inputSchema: { type: "array" }, execute() {} };`,
			"inputSchema does not describe an object"},
		"a name twice":            {`const x = { name: "x", execute() {} }; export default [x, x];`, "the name is taken"},
		"the clock at start-up":   {"\n\nconst x = Date.now(); console.log(x);" + rest, "x.js:3:16: the clock is not there while a tool starts up: move it into execute"},
		"a date at start-up":      {"const x = new Date(); console.log(x);" + rest, "the clock is not there"},
		"randomness at start-up":  {"const x = Math.random(); console.log(x);" + rest, "randomness is not there"},
		"the network at start-up": {`fetch("http://h/").then(() => {});` + rest, "the network is not there"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "x.js")
			treetest.Write(t, source, c.source)
			if wasm, said := build(t, source); wasm != nil || !strings.Contains(said, c.want) {
				t.Errorf("the build says %q, want it to contain %q", said, c.want)
			}
		})
	}
}
