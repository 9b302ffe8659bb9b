// Components compares components of WASI 0.2 and plug-ins for Extism in the sandbox with the
// same bytes elsewhere: a component on Node by jco, with a fresh instance for each call, and a
// plug-in in Extism's Go SDK. The sandbox meters each call, and makes each pristine. All take
// turns, and what is reported are medians, and medians of the rounds' ratios.
//
//	go run ./components [-quick] [-out results/components.md]
//
// What needs Node is left out if npm installed nothing in this folder.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

const (
	folder = "components"
	data   = "../host/internal/component/testdata/"
	text   = "the quick brown fox jumps over the lazy dog and so does the next one, until there are no more of them; "
)

// Goals.
const (
	mostOfNode = 0.1 // of a call on a fresh instance
	mostFirst  = 1.3 // of wazero's compiler alone
	mostSecond = 300 * time.Millisecond

	spiderName = "JavaScript (SpiderMonkey)"
)

// subject is a component or a plug-in, and a function of it that gets text.
type subject struct {
	name, tool, parameter string
	wasm                  []byte
	rival                 string

	joined                int // bytes
	join, first           []float64
	second, wazero, calls []float64 // nanoseconds, one for each round
	rivals                []float64
}

func main() {
	quick := flag.Bool("quick", false, "one short round: shows that it works, not how fast")
	out := flag.String("out", "", "file for the report (default: print only)")
	flag.Parse()
	rounds, slice := 5, 200*time.Millisecond
	if *quick {
		rounds, slice = 1, 20*time.Millisecond
	}
	report, err := run(context.Background(), rounds, slice)
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(report), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "components:", err)
		os.Exit(1)
	}
	fmt.Print(report)
}

func run(ctx context.Context, rounds int, slice time.Duration) (string, error) {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	subjects := []*subject{
		{name: "C, eight functions", tool: "upper", parameter: "text", rival: data + "values.wasm"},
		{name: "plug-in for Extism", tool: "copy", parameter: "input", rival: data + "plugin.wasm"},
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules")); err != nil {
		fmt.Fprintf(os.Stderr, "components: measured without Node: %v\nhint: npm install --prefix bench/%s\n", err, folder)
	} else {
		js := filepath.Join(dir, "text.wasm")
		fmt.Fprintln(os.Stderr, "building a component of JavaScript ...")
		build := exec.CommandContext(ctx, "node", filepath.Join(folder, "node.mjs"), "build", js)
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building a component of JavaScript: %w\n%s", err, out)
		}
		subjects = append(subjects, &subject{name: spiderName, tool: "analyze", parameter: "text", rival: js})
	}
	for _, s := range subjects {
		fmt.Fprintln(os.Stderr, s.name, "...")
		if s.wasm, err = os.ReadFile(s.rival); err != nil {
			return "", err
		}
		if err := s.measure(ctx, dir, rounds, slice); err != nil {
			return "", fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return report(subjects, rounds), nil
}

func (s *subject) measure(ctx context.Context, dir string, rounds int, slice time.Duration) error {
	for round := range rounds {
		if err := s.load(ctx, filepath.Join(dir, fmt.Sprint(s.tool, round))); err != nil {
			return err
		}
	}
	module, closeEngine, err := s.open(ctx, filepath.Join(dir, s.tool+"0"))
	if err != nil {
		return err
	}
	defer closeEngine()
	input, err := json.Marshal(map[string]any{"tool": s.tool, "input": map[string]any{s.parameter: text},
		"context": map[string]any{"run_id": "r", "call_id": "c", "attempt": 1, "variables": map[string]any{}}})
	if err != nil {
		return err
	}
	ours := func() ([]byte, error) {
		r, err := module.Call(ctx, sandbox.Call{Tool: s.tool, Input: input}, figures.NoWorld{})
		return r.Output, err
	}
	answer, rival, end, err := s.elsewhere(ctx)
	if err != nil {
		return err
	}
	defer end()
	var got struct{ Output any }
	if out, err := ours(); err != nil || json.Unmarshal(out, &got) != nil || answer != nil && !reflect.DeepEqual(got.Output, answer) {
		return fmt.Errorf("the output is %s (%v), and elsewhere %v", out, err, answer)
	}
	for round := range rounds + 1 {
		took, err := figures.Timed(slice, ours)
		if err != nil {
			return err
		}
		var theirs float64
		if rival != nil {
			if theirs, err = rival(slice); err != nil {
				return err
			}
		}
		if round > 0 { // the first warms up
			s.calls = append(s.calls, took)
			if rival != nil {
				s.rivals = append(s.rivals, theirs)
			}
		}
	}
	return nil
}

// open loads the subject as the host does, with a cache in a folder.
func (s *subject) open(ctx context.Context, cache string) (*sandbox.Module, func(), error) {
	source, err := guest.FromBytes(context.Background(), nil, "bench", s.wasm, nil)
	if err != nil {
		return nil, nil, err
	}
	engine, err := sandbox.New(ctx, sandbox.Config{CacheDir: cache})
	if err != nil {
		return nil, nil, err
	}
	module, err := engine.Load(ctx, source.Wasm, sandbox.Limits{})
	if err != nil {
		engine.Close(ctx)
		return nil, nil, err
	}
	return module, func() { engine.Close(ctx) }, nil
}

// load loads the subject twice, with an empty cache and with what is in it then, and compiles the
// joined module with wazero, which has as many workers.
func (s *subject) load(ctx context.Context, cache string) error {
	began := time.Now()
	source, err := guest.FromBytes(context.Background(), nil, "bench", s.wasm, nil)
	if err != nil {
		return err
	}
	s.joined, s.join = len(source.Wasm), append(s.join, float64(time.Since(began)))
	for _, to := range []*[]float64{&s.first, &s.second} {
		runtime.GC()
		began = time.Now()
		_, closeEngine, err := s.open(ctx, cache)
		if err != nil {
			return err
		}
		*to = append(*to, float64(time.Since(began)))
		closeEngine()
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	defer r.Close(ctx)
	runtime.GC()
	began = time.Now()
	if _, err := r.CompileModule(experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0)), source.Wasm); err != nil {
		return err
	}
	s.wazero = append(s.wazero, float64(time.Since(began)))
	return nil
}

// elsewhere starts the rival: it returns what a call gives, and a function that makes calls for
// some time and returns the nanoseconds of one. Without Node, both are nil for a component.
func (s *subject) elsewhere(ctx context.Context) (answer any, rival func(time.Duration) (float64, error), end func(), err error) {
	end = func() {}
	if s.parameter == "input" {
		s.rival = "Extism's Go SDK, fresh"
		compiled, err := extism.NewCompiledPlugin(ctx, extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: s.wasm}}}, extism.PluginConfig{EnableWasi: true}, nil)
		if err != nil {
			return nil, nil, end, err
		}
		one := func() ([]byte, error) {
			plugin, err := compiled.Instance(ctx, extism.PluginInstanceConfig{})
			if err != nil {
				return nil, err
			}
			defer plugin.Close(ctx)
			code, out, err := plugin.Call(s.tool, []byte(text))
			if err == nil && code != 0 {
				err = fmt.Errorf("exit code %d", code)
			}
			return bytes.Clone(out), err
		}
		out, err := one()
		return string(out), func(slice time.Duration) (float64, error) { return figures.Timed(slice, one) }, func() { compiled.Close(ctx) }, err
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules")); err != nil {
		return nil, nil, end, nil
	}
	node := exec.CommandContext(ctx, "node", filepath.Join(folder, "node.mjs"), "call", s.rival, s.tool, text)
	s.rival, node.Stderr = "Node, a fresh instance", os.Stderr
	in, err := node.StdinPipe()
	if err != nil {
		return nil, nil, end, err
	}
	out, err := node.StdoutPipe()
	if err != nil {
		return nil, nil, end, err
	}
	if err := node.Start(); err != nil {
		return nil, nil, end, err
	}
	lines := json.NewDecoder(bufio.NewReader(out))
	rival = func(slice time.Duration) (nanos float64, err error) {
		if _, err = fmt.Fprintln(in, slice.Milliseconds()); err == nil {
			err = lines.Decode(&nanos)
		}
		return nanos, err
	}
	return answer, rival, func() { in.Close(); io.Copy(io.Discard, out); node.Wait() }, lines.Decode(&answer)
}
