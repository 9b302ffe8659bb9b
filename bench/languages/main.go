// Languages compares one tool in every language that has an SDK: how large its module is, how long
// it loads, and what a call costs. Beside it are the same tool as a plug-in of Extism, made with
// Extism's kit for the language, and as a process of Python and of Node for each call. All take
// turns, and what is reported are medians, and medians of the rounds' ratios.
//
//	go run ./languages [-quick] [-extism FOLDER] [-w ../docs/languages.md]
//
// FOLDER has the plug-ins that testdata/extism/build.sh built. A language without one gets a dash.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"

	"github.com/starling-host/starling/bench/internal/figures"
	guestsdk "github.com/starling-host/starling/guest-sdk"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// What is measured, beside calls of the tools by their names.
const (
	hello        = "hello"
	transform    = "transform"
	first        = "first load"
	second       = "second load"
	plugin       = "plug-in"
	pluginFresh  = plugin + ", fresh"
	pluginReused = plugin + ", reused"
)

// subject is a language, or a program that does the same in a process for each call.
type subject struct {
	title string
	wasm  map[string][]byte // by tool; and the plug-in, which has transform
	fuel  map[string]uint64 // of a call, by tool; and of start-up
	calls map[string]func() ([]byte, error)
	nanos map[string][]float64 // one for each round
}

func newSubject(title string) *subject {
	return &subject{title, map[string][]byte{}, map[string]uint64{}, map[string]func() ([]byte, error){}, map[string][]float64{}}
}

type settings struct {
	rounds, loads int
	slice         time.Duration
}

// must ends the program if err is an error.
func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "languages:", err)
		os.Exit(1)
	}
	return value
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == "load" { // in a process of its own
		fmt.Print(timeLoad(context.Background(), os.Args[2], os.Args[3], os.Args[4]))
		return
	}
	quick := flag.Bool("quick", false, "short rounds: shows that it works, not how fast")
	plugins := flag.String("extism", "", "folder with the plug-ins for Extism")
	page := flag.String("w", "", "page in which to replace the tables (default: print them)")
	flag.Parse()
	s := settings{rounds: 15, loads: 3, slice: 60 * time.Millisecond}
	if *quick {
		s = settings{rounds: 5, loads: 1, slice: 20 * time.Millisecond}
	}
	tables := run(context.Background(), s, *plugins)
	if *page == "" {
		fmt.Print(tables)
		return
	}
	must(0, os.WriteFile(*page, []byte(must(replace(string(must(os.ReadFile(*page))), tables))), 0o644))
}

func run(ctx context.Context, s settings, plugins string) string {
	text := must(json.Marshal(map[string]string{"text": string(must(os.ReadFile("../LICENSE"))[:1000])}))
	inputs := map[string][]byte{hello: []byte(`{"name":"Ada"}`), transform: text}
	dir := must(os.MkdirTemp("", "starling-bench-"))
	defer os.RemoveAll(dir)
	subjects := build(ctx, dir, plugins)
	engine := must(sandbox.New(ctx, sandbox.Config{CacheDir: filepath.Join(dir, "cache")}))
	defer engine.Close(ctx)
	for _, l := range subjects {
		fmt.Fprintln(os.Stderr, "loading", l.title, "...")
		for range s.loads {
			l.load(ctx, dir)
		}
		l.open(ctx, engine, inputs)
	}
	subjects = append(subjects, processes(ctx, inputs)...)
	want := map[string]any{} // by tool
	for round := range s.rounds + 1 {
		for _, l := range subjects {
			for what, one := range l.calls {
				check(want, l.title+", "+what, must(one()))
				took := must(figures.Timed(s.slice, one))
				if round > 0 { // the first warms up
					l.nanos[what] = append(l.nanos[what], took)
				}
			}
		}
	}
	return report(subjects, s, len(text))
}

// check compares the output of a call with that of the first one.
func check(want map[string]any, what string, out []byte) {
	tool := transform
	if strings.HasSuffix(what, hello) {
		tool = hello
	}
	var got any
	err := json.Unmarshal(out, &got)
	if object, ok := got.(map[string]any); ok && object["output"] != nil {
		got = object["output"]
	}
	if want[tool] == nil {
		want[tool] = got
	}
	if err != nil || !reflect.DeepEqual(got, want[tool]) {
		must(0, fmt.Errorf("%s: the output is %s (%v), want %v", what, out, err, want[tool]))
	}
}

// build builds the tools in all languages.
func build(ctx context.Context, dir, plugins string) (all []*subject) {
	asc := must(filepath.Abs("../guest-sdk/as/node_modules/.bin"))
	os.Setenv("PATH", asc+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for _, l := range guestsdk.Languages() {
		s := newSubject(l.Title)
		if l.Name == "ts" {
			continue // is JavaScript when its types are gone
		} else if l.Name == "js" {
			s.title = "TypeScript, JavaScript"
		}
		fmt.Fprintln(os.Stderr, "building", s.title, "...")
		for _, tool := range []string{hello, transform} {
			folder := filepath.Join("../guest-sdk", l.Name, "examples", tool)
			if l.Needs != "" && l.Name != "go" {
				folder = newTool(l, tool, folder, filepath.Join(dir, l.Name, tool))
			}
			s.wasm[tool] = must(guest.Find(ctx, folder)).Wasm
		}
		if wasm, err := os.ReadFile(filepath.Join(plugins, l.Name+".wasm")); !errors.Is(err, fs.ErrNotExist) {
			s.wasm[plugin] = must(wasm, err)
		}
		all = append(all, s)
	}
	return all
}

// newTool makes a folder of an example that has a copy of the SDK.
func newTool(l guestsdk.Language, tool, example, folder string) string {
	must(0, os.CopyFS(folder, os.DirFS(example)))
	for p, content := range must(l.Files(tool, tool)) {
		if strings.HasPrefix(p, "sdk/") {
			must(0, os.MkdirAll(filepath.Dir(filepath.Join(folder, p)), 0o755))
			must(0, os.WriteFile(filepath.Join(folder, p), content, 0o644))
		}
	}
	return folder
}

// load has new processes load the tool transform and the plug-in, with an empty cache and then with
// what is in it.
func (l *subject) load(ctx context.Context, dir string) {
	self := must(os.Executable())
	for kind, prefix := range map[string]string{transform: "", plugin: plugin} {
		if l.wasm[kind] == nil {
			continue
		}
		cache := must(os.MkdirTemp(dir, "cache-"))
		file := filepath.Join(cache, "module.wasm")
		must(0, os.WriteFile(file, l.wasm[kind], 0o644))
		for _, name := range []string{prefix + first, prefix + second} {
			cmd := exec.CommandContext(ctx, self, "load", kind, file, filepath.Join(cache, "code"))
			cmd.Stderr = os.Stderr
			l.nanos[name] = append(l.nanos[name], must(strconv.ParseFloat(string(must(cmd.Output())), 64)))
		}
		must(0, os.RemoveAll(cache))
	}
}

// timeLoad loads a module or a plug-in so that it can be called, and returns the nanoseconds.
func timeLoad(ctx context.Context, kind, file, cache string) int64 {
	wasm := must(os.ReadFile(file))
	began := time.Now()
	if kind == plugin {
		code := must(wazero.NewCompilationCacheWithDir(cache))
		compiled := compilePlugin(ctx, wasm, wazero.NewRuntimeConfig().WithCompilationCache(code))
		must(compiled.Instance(ctx, extism.PluginInstanceConfig{}))
		return time.Since(began).Nanoseconds()
	}
	engine := must(sandbox.New(ctx, sandbox.Config{CacheDir: cache}))
	defer engine.Close(ctx)
	loadModule(ctx, engine, wasm)
	return time.Since(began).Nanoseconds()
}

func loadModule(ctx context.Context, engine *sandbox.Engine, wasm []byte) *sandbox.Module {
	return must(engine.Load(ctx, wasm, must(guest.Limits(wasm, sandbox.DefaultLimits()))))
}

func compilePlugin(ctx context.Context, wasm []byte, config wazero.RuntimeConfig) *extism.CompiledPlugin {
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: wasm}}}
	return must(extism.NewCompiledPlugin(ctx, manifest, extism.PluginConfig{EnableWasi: true, RuntimeConfig: config}, nil))
}

// open loads the tools and the plug-in for calls in this process.
func (l *subject) open(ctx context.Context, engine *sandbox.Engine, inputs map[string][]byte) {
	for tool, input := range inputs {
		module := loadModule(ctx, engine, l.wasm[tool])
		if tool == transform {
			l.fuel[first] = must(module.Start()).Fuel
		}
		call := sandbox.Call{Tool: tool, Input: []byte(`{"tool":"` + tool + `","input":` + string(input) + `,"context":{"run_id":"r","call_id":"c","attempt":1}}`)}
		l.calls[tool] = func() ([]byte, error) {
			r, err := module.Call(ctx, call, figures.NoWorld{})
			l.fuel[tool] = r.Meter.Fuel
			return r.Output, err
		}
	}
	if l.wasm[plugin] == nil {
		return
	}
	compiled := compilePlugin(ctx, l.wasm[plugin], nil)
	instance := func() *extism.Plugin { return must(compiled.Instance(ctx, extism.PluginInstanceConfig{})) }
	call := func(p *extism.Plugin) ([]byte, error) {
		_, out, err := p.Call("run", inputs[transform])
		return bytes.Clone(out), err
	}
	l.calls[pluginFresh] = func() ([]byte, error) {
		p := instance()
		defer p.Close(ctx)
		return call(p)
	}
	p := instance()
	l.calls[pluginReused] = func() ([]byte, error) { return call(p) }
}

// processes returns the programs that do the same in a process for each call.
func processes(ctx context.Context, inputs map[string][]byte) []*subject {
	python := strings.TrimSpace(string(must(exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output()))) // python3 may be a script
	process := func(title, command, option, folder string, program func(tool, source string) string) *subject {
		s := newSubject(title)
		for tool, input := range inputs {
			file := must(filepath.Glob(filepath.Join("../guest-sdk", folder, "examples", tool, "tool.*")))[0]
			code := program(tool, string(must(os.ReadFile(file))))
			s.calls[tool] = func() ([]byte, error) {
				cmd := exec.CommandContext(ctx, command, option, code)
				cmd.Stdin = bytes.NewReader(input)
				return cmd.Output()
			}
		}
		return s
	}
	return []*subject{
		process("`python3 -c`", python, "-c", "python", func(tool, source string) string {
			return source + "\nimport json, sys\nprint(json.dumps(" + tool + "(**json.load(sys.stdin))))"
		}),
		process("`node -e`", "node", "-e", "js", func(_, source string) string {
			_, source, _ = strings.Cut(source, "export default tool(")
			return "const tool = (" + source + "\nconsole.log(JSON.stringify(tool.execute(JSON.parse(require('fs').readFileSync(0, 'utf8')))))"
		}),
	}
}
