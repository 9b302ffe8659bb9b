package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/tool"
)

// record is what observers were told.
type record struct {
	reports []string
	sources []string
	fuel    uint64
}

func (r *record) Enter(function uint32, fuel uint64) { r.add("enter", function, fuel) }

func (r *record) EnterImport(name string, fuel uint64) { r.add(name, fuel) }

func (r *record) Line(depth int, function, file string, line int, fuel uint64) {
	r.add("line ", depth, function, file, line, fuel)
}

func (r *record) Module(functions int, language, problem string) {
	r.sources = append(r.sources, fmt.Sprint(functions, language, problem))
}

func (r *record) Function(index uint32, name string) {
	r.sources = append(r.sources, fmt.Sprint(index, name))
}

func (r *record) SourceLine(l sandbox.SourceLine) { r.sources = append(r.sources, fmt.Sprint(l)) }

func (r *record) Leave(fuel uint64) { r.add("leave", fuel) }

func (r *record) End(fuel uint64) { r.add("end", fuel) }

func (r *record) add(what ...any) { r.reports = append(r.reports, fmt.Sprint(what...)) }

func (r *record) observers() sandbox.Observers {
	return sandbox.Observers{
		Profile:  func(tool string) sandbox.Profiler { r.add("call of ", tool); return r },
		Source:   func(tool string) sandbox.Source { return r },
		Progress: func(fuel uint64) { r.fuel += fuel },
	}
}

// observable loads a module into an engine that is observed, beside another one.
func observable(t *testing.T, of sandbox.Observable, o sandbox.Observers, wasm []byte, l sandbox.Limits) sandbox.Loaded {
	t.Helper()
	e, done, err := of.Observed(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return mustLoad(t, e, wasm, l)
}

// TestObserversSeeTheSameOfAnotherProcess, call after call: functions, executions and fuel.
func TestObserversSeeTheSameOfAnotherProcess(t *testing.T) {
	nests := asks(new(wasm.Asm).Index(wasm.OpCall, 4)) // which calls itself until the stack is too deep
	nests.Funcs = append(nests.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: new(wasm.Asm).Index(wasm.OpCall, 0).Op(wasm.OpDrop).Index(wasm.OpCall, 4)})
	traps := tiny()
	traps.Funcs[2].Code = unreachable()
	for name, tt := range map[string]struct {
		wasm   []byte
		limits sandbox.Limits
	}{
		"asks":     {asksForTheTime().Bytes(), sandbox.Limits{}},
		"computes": {asksForEver().Bytes(), sandbox.Limits{Fuel: 400_000}}, // less than the host lets run at a time
		"traps":    {traps.Bytes(), sandbox.Limits{}}, "nests": {nests.Bytes(), sandbox.Limits{Depth: 10_000, Effects: 50_000}},
		"run_js": {interp.Tools["run_js"].Wasm(), sandbox.Limits{}}, // with lines of its script
	} {
		var here, there record
		inside := observable(t, inline(t), here.observers(), tt.wasm, tt.limits)
		outside := observable(t, workers(t, Config{}), there.observers(), tt.wasm, tt.limits)
		for range 2 {
			_, _ = inside.Call(t.Context(), sandbox.Call{Tool: name, Input: []byte("x")}, &world{})
			before := len(children(t))
			_, _ = outside.Call(t.Context(), sandbox.Call{Tool: name, Input: []byte("x")}, &world{})
			if before == 0 {
				t.Errorf("%s: there is no other process", name)
			}
		}
		if len(here.reports) < 8 || len(here.sources) < 3 || here.fuel == 0 {
			t.Fatalf("%s: %+v", name, here)
		}
		if script := slices.ContainsFunc(here.reports, func(r string) bool { return strings.Contains(r, "line ") }); script != (name == "run_js") {
			t.Errorf("%s: lines of a script: %v", name, script)
		}
		if diff := cmp.Diff(here, there, cmp.AllowUnexported(record{})); diff != "" {
			t.Errorf("%s (-here +there):\n%.2000s", name, diff)
		}
	}
}

// TestAnObservedCallEndsWithItsProcess, and with its caller.
func TestAnObservedCallEndsWithItsProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(t *testing.T, cancel func())
		want error
	}{
		"killed":    {func(t *testing.T, _ func()) { killWorkers(t) }, tool.ErrHost},
		"cancelled": {func(_ *testing.T, cancel func()) { cancel() }, tool.ErrCancelled},
		"hung":      {func(t *testing.T, cancel func()) { freezeWorkers(t); cancel() }, tool.ErrCancelled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		computing := make(chan bool)
		told := 0
		var r record
		o := r.observers()
		o.Progress = func(uint64) {
			if told++; told == 2 {
				close(computing)
			}
		}
		m := observable(t, workers(t, Config{Grace: 50 * time.Millisecond}), o, spins().Bytes(), sandbox.Limits{Fuel: 1 << 60})
		go func() { <-computing; tt.end(t, cancel) }()
		if _, err := m.Call(ctx, sandbox.Call{Tool: name, NoTimeout: true}, quiet{}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// TestReportsAreBounded: what no honest process says ends the call.
func TestReportsAreBounded(t *testing.T) {
	report := func(kind byte, a, b uint64) []byte {
		return binary.AppendUvarint(binary.AppendUvarint([]byte{kind}, a), b)
	}
	many := func(n int, one []byte) (all []byte) {
		for range n {
			all = append(all, one...)
		}
		return all
	}
	source := append(append(report(reportModule, 2, 0), many(8, []byte{0})...), append(report(reportFunction, 1, 0), 1, 0, 0, 0, 'f')...)
	var r record
	every, none := r.observers(), sandbox.Observers{}
	for name, tt := range map[string]struct {
		o    sandbox.Observers
		body []byte
		ok   bool
	}{
		"a call":                    {every, append(report(reportEnter, 3, 5), report(reportEnd, 0, 2)...), true},
		"as deep as it may":         {every, many(100, report(reportEnter, 3, 1)), true},
		"deeper":                    {every, many(110, report(reportEnter, 3, 1)), false},
		"deeper imports":            {every, many(110, report(reportImport, 0, 1)), false},
		"an import that is not one": {every, report(reportImport, 1, 1), false},
		"an unknown function":       {every, report(reportEnter, 1<<32, 1), false},
		"fuel beyond all numbers":   {every, many(2, report(reportLeave, 0, 1<<63)), false},
		"an unknown report":         {every, report(reportProgress+1, 0, 0), false},
		"no report":                 {every, report(0, 0, 0), false},
		"a part of one":             {every, []byte{reportEnter, 0x80}, false},
		"too long a number":         {every, append([]byte{reportEnter}, many(11, []byte{0xff})...), false},
		"a source":                  {every, source, true},
		"a source twice":            {every, append(slices.Clone(source), source...), false},
		"another number":            {every, append(report(reportModule, 1, 2), many(8, []byte{0})...), false},
		"a number of a function":    {every, append(slices.Clone(source), append(report(reportFunction, 0, 1), many(4, []byte{0})...)...), false},
		"a function before it":      {every, append(report(reportFunction, 0, 0), many(4, []byte{0})...), false},
		"a line before it":          {every, append(report(reportSource, 1, 1), many(10, []byte{0})...), false},
		"a long name":               {every, append(source, append(report(reportFunction, 0, 0), appendBytes(nil, many(maxText+1, []byte{'x'}))...)...), false},
		"a profile for nobody":      {none, report(reportLeave, 0, 1), false},
		"a source for nobody":       {none, source, false},
		"progress for nobody":       {none, report(reportProgress, 0, 1), false},
	} {
		h := &call{module: &Module{engine: &Engine{config: Config{Observers: tt.o}}}}
		h.module.prepared.Limits.Depth, h.module.prepared.Imports = 100, []string{"starling:v1.now"}
		if err := h.observed(tt.body); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
