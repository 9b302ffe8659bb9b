//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// keepingIn returns an engine that keeps the start of every module in the folder.
func keepingIn(t *testing.T, dir string, c Config) *Engine {
	t.Helper()
	c.CacheDir = dir
	c.VerifyEvery = 1
	e, err := New(t.Context(), c)
	must(t, err)
	e.heavy = 0
	t.Cleanup(func() { e.Close(context.Background()) })
	return e
}

// starter is a tool whose start-up writes to the log, reads its clock and draws random
// bytes, grows its memory and keeps all of that. What it executes returns it.
func starter() *wasmtest.Module {
	const at = outputAt
	m := tiny(asm().I64(int64(abi.Pack(at, 64))), "clock_time_get", "random_get", "fd_write")
	m.Memory = wasmtest.Pages(1)
	m.Globals = append(m.Globals, wasmtest.Global{Type: wasm.I64, Mutable: true})
	m.Data = []wasmtest.Data{{Offset: 0x100, Bytes: "\x20\x01\x00\x00\x05\x00\x00\x00"}, {Offset: 0x120, Bytes: "a log"}}
	body := asm().
		I32(0).I64(1).I32(at).Index(wasm.OpCall, 0).Op(wasm.OpDrop).
		I32(at+8).I32(32).Index(wasm.OpCall, 1).Op(wasm.OpDrop).
		I32(2).I32(0x100).I32(1).I32(0x200).Index(wasm.OpCall, 2).Op(wasm.OpDrop).
		I32(3).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop).
		I64(77).Index(wasm.OpGlobalSet, 0)
	m.Funcs = append(m.Funcs, wasmtest.Func{Export: abi.ExportWarmup, Type: wasmtest.Type(":"), Code: body})
	return m
}

// startedModules are modules with start-ups of many kinds; nightly, all that the repository has.
func startedModules(t *testing.T) map[string][]byte {
	modules := map[string][]byte{
		"hand-built": starter().Bytes(), "without a start-up": tiny(output("executed")).Bytes(),
		"QuickJS": interp.Tools["run_js"].Wasm(),
	}
	if os.Getenv("STARLING_NIGHTLY") == "" {
		return modules
	}
	modules["Go tool"], modules["Go command"] = goGuest(t, "tool"), goGuest(t, "command")
	for _, pattern := range []string{"../internal/component/testdata/*.wasm", "testdata/*.wasm", "../../guest-sdk/*/*.wasm"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, file := range files {
			b, err := os.ReadFile(file)
			must(t, err)
			modules[file] = b
		}
	}
	return modules
}

// sameStart compares all that calls begin with.
func sameStart(t *testing.T, want, got *Module) {
	t.Helper()
	a, b := want.start, got.start
	if !bytes.Equal(a.image.Contents(), b.image.Contents()) {
		t.Error("another memory")
	}
	if diff := cmp.Diff(fmt.Sprintf("%+v", described(a)), fmt.Sprintf("%+v", described(b))); diff != "" {
		t.Error(diff)
	}
}

// described is a start without its memory, and without the part of its meter that only a
// failed start-up has.
func described(s *start) start {
	d := start{pages: s.pages, globals: s.globals, clock: s.clock, log: s.log}
	random, _ := s.random.MarshalBinary()
	_ = d.random.UnmarshalBinary(random) // which drops the bytes that are used up
	d.log.head, d.log.tail = append([]byte{}, d.log.head...), append([]byte{}, d.log.tail...)
	d.meter.Fuel = s.meter.Fuel
	return d
}

// TestAKeptStartIsTheStart: begun anew without a cache, made for the cache, and found in it.
func TestAKeptStartIsTheStart(t *testing.T) {
	kept := 0
	for name, wasm := range startedModules(t) {
		fresh, err := compiler().Load(t.Context(), wasm, Limits{})
		if err != nil {
			continue // a component, for instance
		}
		t.Run(name, func(t *testing.T) {
			defer fresh.Close(context.Background())
			if fresh.start.failure != nil {
				t.Skip("SKIPPED: its start-up fails: ", fresh.start.failure)
			}
			kept++
			dir := filepath.Join(t.TempDir(), "cache")
			for _, c := range []Config{{}, {}, {Reset: ResetFresh}} {
				e := keepingIn(t, dir, c)
				m := load(t, e, wasm, Limits{})
				sameStart(t, fresh, m)
				want, wantErr := fresh.Start()
				got, err := m.Start()
				if got != want || err != wantErr {
					t.Errorf("got %v, %v, want %v", got, err, want)
				}
				if p := recalled(e, wasm, DefaultLimits()); p == nil || len(p.Start) == 0 || p.Digest != fresh.Digest() {
					t.Error("it was not kept")
				}
				a, errA := fresh.Describe(t.Context())
				b, errB := m.Describe(t.Context())
				if string(a) != string(b) || fmt.Sprint(errA) != fmt.Sprint(errB) {
					t.Errorf("described as %q, %v, not %q, %v", b, errB, a, errA)
				}
				for range 2 { // in the first instance, and in one that was reset
					x, errX := fresh.Call(t.Context(), Call{Tool: "echo", Input: envelope("echo", `1`)}, &world{})
					y, errY := m.Call(t.Context(), Call{Tool: "echo", Input: envelope("echo", `1`)}, &world{})
					if diff := cmp.Diff(x, y); diff != "" || fmt.Sprint(errX) != fmt.Sprint(errY) {
						t.Error(diff, errX, errY)
					}
				}
			}
		})
	}
	if kept < 3 {
		t.Errorf("%d modules were kept", kept)
	}
}

// TestOnlyAHeavyStartIsKept, that succeeds and is not too large.
func TestOnlyAHeavyStartIsKept(t *testing.T) {
	failing := starter()
	failing.Funcs[len(failing.Funcs)-1].Code = asm().Op(wasm.OpUnreachable)
	for name, tc := range map[string]struct {
		wasm  []byte
		heavy uint64
		want  bool
	}{
		"heavy":   {starter().Bytes(), 1, true},
		"light":   {starter().Bytes(), heavyStart, false},
		"failing": {failing.Bytes(), 0, false},
	} {
		e := keeping(t)
		e.heavy = tc.heavy
		load(t, e, tc.wasm, Limits{})
		p := recalled(e, tc.wasm, DefaultLimits())
		if p == nil || len(p.Start) > 0 != tc.want {
			t.Errorf("%s: kept %+v", name, p)
		}
		other := DefaultLimits()
		other.LogBytes--
		if recalled(e, tc.wasm, other) != nil {
			t.Errorf("%s: found with another limit of the log", name)
		}
	}
	e := keeping(t)
	e.heavy = 0
	huge := tiny(asm().I64(int64(abi.Pack(outputAt, 8))))
	huge.Memory = wasmtest.Pages(1)
	// Every page of MaxStart bytes and one more is written.
	pages, page := int32(MaxStart/wasm.PageSize), int32(os.Getpagesize())
	fill := asm().I32(pages).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop)
	loop := asm().Index(wasm.OpLocalGet, 0).I32(1).Access(wasm.OpI32Store8, 0).
		Index(wasm.OpLocalGet, 0).I32(page).Op(wasm.OpI32Add).Index(wasm.OpLocalTee, 0).I32((pages+1)*wasm.PageSize).Op(wasm.OpI32LtU).Index(wasm.OpBrIf, 0)
	*fill = append(*fill.Block(wasm.OpLoop, wasm.BlockEmpty), *loop...)
	fill.Op(wasm.OpEnd)
	huge.Funcs = append(huge.Funcs, wasmtest.Func{Export: abi.ExportWarmup, Type: wasmtest.Type(":"), Code: fill, Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.I32}}})
	limits := DefaultLimits()
	limits.MemoryPages = uint32(pages) + 1
	m := load(t, e, huge.Bytes(), limits)
	if p := recalled(e, huge.Bytes(), limits); m.start.failure != nil || m.start.pages != uint32(pages)+1 || p == nil || len(p.Start) > 0 {
		t.Errorf("%v, %d pages: kept %v", m.start.failure, m.start.pages, p)
	}
}

// TestAStartThatIsWrongIsMadeAgain: as a process that a module has taken over could leave it.
func TestAStartThatIsWrongIsMadeAgain(t *testing.T) {
	wasm := starter().Bytes()
	fresh := load(t, compiler(), wasm, Limits{})
	for name, spoil := range map[string]func(p *Prepared, s *savedStart){
		"no JSON":               func(p *Prepared, _ *savedStart) { p.Start = []byte("{") },
		"more memory":           func(_ *Prepared, s *savedStart) { s.Pages = 1 << 20 },
		"less memory than data": func(_ *Prepared, s *savedStart) { s.Pages = 0 },
		"fewer globals":         func(_ *Prepared, s *savedStart) { s.Globals = nil },
		"more globals":          func(_ *Prepared, s *savedStart) { s.Globals = append(s.Globals, 1) },
		"a flag of two":         func(_ *Prepared, s *savedStart) { s.Refused = 2 },
		"a late clock":          func(_ *Prepared, s *savedStart) { s.Mono = maxMono + 1 },
		"no generator":          func(_ *Prepared, s *savedStart) { s.Random = s.Random[1:] },
		"a long log":            func(_ *Prepared, s *savedStart) { s.LogHead = make([]byte, DefaultLimits().LogBytes+1) },
		"a long end of the log": func(_ *Prepared, s *savedStart) { s.LogTail = make([]byte, 1<<20) },
	} {
		dir := filepath.Join(t.TempDir(), "cache")
		e := keepingIn(t, dir, Config{})
		load(t, e, wasm, Limits{})
		p := recalled(e, wasm, DefaultLimits())
		spoiled := *p
		var s savedStart
		must(t, json.Unmarshal(p.Start, &s))
		spoiled.Start = nil
		spoil(&spoiled, &s)
		if spoiled.Start == nil {
			spoiled.Start, _ = json.Marshal(s)
		}
		if err := p.Resume(spoiled.Start, spoiled.Data); err == nil {
			t.Errorf("%s: it is taken from a worker", name)
		}
		e.cache.remember(e.key(p.Digest, p.Limits), &spoiled)
		m := load(t, keepingIn(t, dir, Config{}), wasm, Limits{})
		sameStart(t, fresh, m)
		if again := recalled(e, wasm, DefaultLimits()); again == nil || again.Resume(again.Start, again.Data) != nil {
			t.Errorf("%s: it was not made again", name)
		}
	}
}

// TestEnginesKeepAStartAtOnce: as processes do that share a folder.
func TestEnginesKeepAStartAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	wasm := starter().Bytes()
	fresh := load(t, compiler(), wasm, Limits{})
	var all sync.WaitGroup
	for range 4 {
		e := keepingIn(t, dir, Config{})
		all.Go(func() {
			for range 5 {
				m, err := e.Load(context.Background(), wasm, Limits{})
				if err != nil {
					t.Error(err)
					return
				}
				sameStart(t, fresh, m)
				m.Close(context.Background())
				e.cache.trim(time.Now())
			}
		})
	}
	all.Wait()
}

// TestAFolderThatCannotBeWritten: what it has is used, and a start that it lacks is run.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may write everywhere, so a file is in the way of the folder instead.
		dir := filepath.Join(t.TempDir(), "cache")
		wasm := starter().Bytes()
		e := keepingIn(t, dir, Config{})
		must(t, os.WriteFile(filepath.Join(dir, preparedFolder), nil, 0o600))
		for range 2 {
			got, err := load(t, e, wasm, Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
			if err != nil || len(got.Output) != 64 {
				t.Errorf("%q, %v", got.Output, err)
			}
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "cache")
	wasm := starter().Bytes()
	load(t, keepingIn(t, dir, Config{}), wasm, Limits{})
	must(t, os.Chmod(filepath.Join(dir, preparedFolder), 0o500))
	must(t, os.Chmod(dir, 0o500))
	defer os.Chmod(dir, 0o700)
	defer os.Chmod(filepath.Join(dir, preparedFolder), 0o700)
	e := keepingIn(t, dir, Config{})
	m := load(t, e, wasm, Limits{})
	if p := recalled(e, wasm, DefaultLimits()); p == nil || len(p.Start) == 0 {
		t.Error("what is there is not found")
	}
	sameStart(t, load(t, compiler(), wasm, Limits{}), m)
}
