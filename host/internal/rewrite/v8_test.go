package rewrite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// v8Program is a program for testdata/v8.js, which executes it with a bridge.
type v8Program struct {
	Wasm    []byte     `json:"wasm"`
	Before  []byte     `json:"before"`
	After   []byte     `json:"after"`
	Imports []v8Import `json:"imports"`
	Globals []string   `json:"globals"`
	Data    []Segment  `json:"data"`
	Start   *int       `json:"start,omitempty"`
	Calls   []v8Call   `json:"calls"`
	Fuel    uint64     `json:"fuel"`
	Depth   uint32     `json:"depth"`
}

type v8Import struct {
	Module string `json:"module"`
	Name   string `json:"name"`
	Params int    `json:"params"`
}

type v8Call struct {
	Name    string   `json:"name"`
	F       int      `json:"f"`
	Args    []string `json:"args"`
	Results int      `json:"results"`
}

// v8Batch is programs, with the expected observations of each.
type v8Batch struct {
	programs []v8Program
	want     []v8Seen
}

type v8Seen struct {
	Seen []string `json:"seen"`
	Fuel []uint64 `json:"fuel"`
}

// add runs a program on the compiler and adds it, unless the gate refuses it. It returns how
// many calls that are. The module for V8 explains its traps, and must count no other fuel.
func (b *v8Batch) add(t *testing.T, o *observer, module []byte, calls []observedCall, allowed lookup) int {
	t.Helper()
	options := Options{MemoryPages: observedPages, Depth: observedDepth}
	res, err := rewriteWith(work.Trusted(context.Background()), module, DefaultLimits(), options, allowed)
	if err != nil {
		return 0
	}
	if _, exported := res.Info.Export("memory"); len(res.Data) > 0 && !exported {
		return 0 // its data cannot be put there from JavaScript; a tool exports its memory
	}
	seen, err := o.metered(res, calls)
	if err != nil {
		return 0 // it is not valid
	}
	options.Explain = true
	if res, err = rewriteWith(work.Trusted(context.Background()), module, DefaultLimits(), options, allowed); err != nil {
		t.Fatal(err)
	}
	bridge, err := NewBridge(work.Trusted(context.Background()), res.Wasm)
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Decode(work.Trusted(context.Background()), module)
	if err != nil {
		t.Fatal(err)
	}
	p := v8Program{Wasm: res.Wasm, Before: bridge.Before, After: bridge.After, Globals: bridge.Globals, Data: res.Data, Calls: []v8Call{}, Fuel: observedFuel, Depth: observedDepth}
	for _, im := range bridge.Imports {
		p.Imports = append(p.Imports, v8Import{im.Module, im.Name, len(im.Type.Params)})
	}
	if i := slices.Index(bridge.Functions, ExportStart); i >= 0 {
		p.Start = &i
	}
	for _, c := range calls {
		e := m.Exports[slices.IndexFunc(m.Exports, func(e wasm.Export) bool { return e.Name == c.name })]
		v := v8Call{Name: c.name, F: slices.Index(bridge.Functions, c.name), Args: []string{}, Results: len(m.Types[m.FuncTypeIndex(int(e.Index))].Results)}
		for _, a := range c.args {
			v.Args = append(v.Args, fmt.Sprint(a))
		}
		p.Calls = append(p.Calls, v)
	}
	want := slices.DeleteFunc(seen.seen, func(line string) bool { // immutable globals are not in the bridge
		name, _, _ := strings.Cut(line, " ")
		i := slices.IndexFunc(m.Exports, func(e wasm.Export) bool { return e.Name == name && e.Kind == wasm.ExternGlobal })
		return i >= 0 && !m.Globals[m.Exports[i].Index].Mutable
	})
	b.programs, b.want = append(b.programs, p), append(b.want, v8Seen{want, seen.fuel})
	return len(calls)
}

// compare runs the programs on V8.
func (b *v8Batch) compare(t *testing.T) {
	t.Helper()
	input, err := json.Marshal(b.programs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join("testdata", "v8.js"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	out, err := cmd.Output()
	var got []v8Seen
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || len(got) != len(b.want) {
		t.Fatalf("node: %v; %d of %d programs", err, len(got), len(b.want))
	}
	for i, want := range b.want {
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Errorf("program %d (-wazero +V8):\n%s", i, diff)
		}
	}
}

func needsNode(t *testing.T) {
	treetest.Needs(t, "node")
}

// TestV8RandomPrograms has V8 execute random programs and every float instruction: each call
// ends as on wazero, with the same fuel, and leaves the same memory and globals.
func TestV8RandomPrograms(t *testing.T) {
	needsNode(t)
	programs := uint64(treetest.Count(50, 100, 20_000))
	o := newObserver(t, "compiler")
	const atOnce = 1000
	for first := uint64(0); first < programs; first += atOnce {
		var b v8Batch
		for i := first; i < min(first+atOnce, programs); i++ {
			p := generate(randomSeed(i))
			b.add(t, o, p.metered, p.calls, ImportType)
		}
		if len(b.programs) < int(min(atOnce, programs-first))*9/10 {
			t.Errorf("only %d programs", len(b.programs))
		}
		b.compare(t)
	}
	var b v8Batch
	for _, f := range floatOps() {
		b.add(t, o, floatModule(), f.matrix(), ImportType)
	}
	b.compare(t)
}

// TestV8Spec makes V8 run the calls of the official test suite on metered modules,
// and compares with wazero, on which TestSpec compares with the suite.
func TestV8Spec(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: TestV8RandomPrograms compares less")
	}
	needsNode(t)
	root := specRoot(t)
	o := newObserverOf(t, "compiler", append(slices.Clone(observedImports), spectest()...))
	calls := 0
	for _, version := range []string{"v1", "v2"} {
		files, err := filepath.Glob(filepath.Join(root, version, "testdata", "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		var b v8Batch
		for _, file := range files {
			calls += b.addSpec(t, o, file)
		}
		b.compare(t)
	}
	t.Logf("%d calls", calls)
	if calls < 30_000 {
		t.Errorf("only %d calls were compared", calls)
	}
}

// addSpec adds each module of a script with the calls that follow it.
func (b *v8Batch) addSpec(t *testing.T, o *observer, file string) (n int) {
	t.Helper()
	text, err := os.ReadFile(file)
	var script specScript
	if err == nil {
		err = json.Unmarshal(text, &script)
	}
	if err != nil {
		t.Fatal(err)
	}
	var module []byte
	var calls []observedCall
	add := func() {
		if module != nil {
			n += b.add(t, o, module, calls, specImport)
		}
		module, calls = nil, nil
	}
	for _, c := range script.Commands {
		switch {
		case c.Type == "module":
			add()
			if module, err = os.ReadFile(filepath.Join(filepath.Dir(file), c.Filename)); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(c.Type, "assert_") && c.Action.Type == "invoke" && c.Action.Module == "", c.Type == "action" && c.Action.Module == "":
			call := observedCall{name: c.Action.Field}
			for _, a := range c.Action.Args {
				call.args = append(call.args, a.bits())
			}
			calls = append(calls, call)
		}
	}
	add()
	return n
}

// spectest is the suite's imports from its host.
func spectest() (all []wasmtest.Import) {
	for _, name := range []string{"print", "print_i32", "print_i64", "print_f32", "print_f64", "print_i32_f32", "print_f64_f64"} {
		of, _ := specImport("spectest", name)
		all = append(all, wasmtest.Import{Module: "spectest", Name: name, Type: of})
	}
	return all
}

// TestExplainCountsNothing: a module that explains its traps ends each call as without, with
// the same fuel.
func TestExplainCountsNothing(t *testing.T) {
	o := newObserver(t, "compiler")
	for i := range uint64(100) {
		p := generate(randomSeed(i))
		var seen [2]*observation
		for k, explain := range []bool{false, true} {
			res := mustRewrite(t, p.metered, Options{MemoryPages: observedPages, Depth: observedDepth, Explain: explain})
			var err error
			if seen[k], err = o.metered(res, p.calls); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(seen[0], seen[1], cmp.AllowUnexported(observation{})); diff != "" {
			t.Errorf("program %d (-plain +explained):\n%s", i, diff)
		}
	}
}
