//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/host/internal/rewrite"
)

// TestPreparedSurvivesTheWay: all of it, so that a new field is not forgotten, and
// truncated bytes load nothing.
func TestPreparedSurvivesTheWay(t *testing.T) {
	prepared := Prepared{
		Digest: Digest{1, 2}, ABI: "an ABI", Imports: []string{"a.b", "c.d"}, Limits: Limits{Fuel: 1, EffectBytes: 9},
		Wasm: []byte("rewritten"), Code: Digest{3}, Size: 5, Data: []rewrite.Segment{{Offset: 1 << 31, Bytes: []byte("data")}, {Offset: 7, Bytes: []byte{}}},
		Globals: []string{"g"}, First: []string{"_initialize"}, Start: []byte("{}"), Reserve: 1 << 40, Folder: "a", Module: []byte("b"),
	}
	pieces, err := prepared.Encode()
	must(t, err)
	body := slices.Concat(pieces...)
	got, err := DecodePrepared(body)
	if diff := cmp.Diff(&prepared, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for n := range body {
		if _, err := DecodePrepared(body[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a module", n, len(body))
		}
	}
	for _, e := range []encoded{{}, {Offsets: []uint32{1}}, {Lengths: []uint32{0, 0, 0}}, {Offsets: []uint32{1}, Lengths: []uint32{0, 0}}} {
		var b bytes.Buffer
		must(t, gob.NewEncoder(&b).Encode(&e))
		if _, err := DecodePrepared(b.Bytes()); err == nil {
			t.Errorf("%d places and %d lengths are the data of a module", len(e.Offsets), len(e.Lengths))
		}
	}
	for i, v := range reflect.ValueOf(prepared).Fields() {
		if v.IsZero() {
			t.Errorf("%s is not tested", i.Name)
		}
	}
}

// recalled returns the engine's entry for a module, or nil.
func recalled(e *Engine, wasm []byte, l Limits) *Prepared {
	digest := Sum(wasm)
	return e.cache.recall(e.key(digest, l), digest, l)
}

func TestWhatWasPreparedIsKept(t *testing.T) {
	e := keeping(t)
	wasm := tiny(output("executed"), "now").Bytes()
	limits := DefaultLimits()
	var want Prepared
	err := e.Prepare(t.Context(), wasm, limits, func(p *Prepared) error {
		want = *p
		return nil
	})
	must(t, err)
	if diff := cmp.Diff(&want, recalled(e, wasm, limits)); diff != "" {
		t.Error(diff)
	}
	other := limits
	other.Fuel, other.InputBytes = 5, 6
	if p := recalled(e, wasm, other); p == nil || p.Limits != other {
		t.Errorf("with limits that do not change the code: %+v", p)
	}
	tests := map[string]func(wasm *[]byte, l *Limits){
		"another module":      func(wasm *[]byte, _ *Limits) { *wasm = tiny(output("described"), "now").Bytes() },
		"another depth":       func(_ *[]byte, l *Limits) { l.Depth-- },
		"less memory":         func(_ *[]byte, l *Limits) { l.MemoryPages-- },
		"another program":     func(*[]byte, *Limits) { e.cache.program += "2" },
		"a program with none": func(*[]byte, *Limits) { e.cache.program = "" },
	}
	for name, change := range tests {
		wasm, limits, program := wasm, limits, e.cache.program
		if change(&wasm, &limits); recalled(e, wasm, limits) != nil {
			t.Errorf("%s finds what is not its own", name)
		}
		e.cache.program = program
	}
	if recalled(e, wasm, limits) == nil {
		t.Error("it is not there any more")
	}
}

// TestASecondEngineDoesNotPrepareAgain: an entry that differs from what would be prepared
// shows that it is used.
func TestASecondEngineDoesNotPrepareAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	wasm := tiny(output("executed")).Bytes()
	first, err := New(t.Context(), Config{CacheDir: dir})
	must(t, err)
	defer first.Close(context.Background())
	load(t, first, wasm, Limits{})
	p := recalled(first, wasm, DefaultLimits())
	p.Imports = []string{"as it was kept"}
	first.cache.remember(first.key(p.Digest, p.Limits), p)

	second, err := New(t.Context(), Config{CacheDir: dir})
	must(t, err)
	defer second.Close(context.Background())
	m := load(t, second, wasm, Limits{})
	if diff := cmp.Diff(p.Imports, m.Imports()); diff != "" {
		t.Error(diff)
	}
	got, err := m.Call(t.Context(), Call{Input: []byte("x")}, &world{})
	if err != nil || string(got.Output) != "executed" {
		t.Errorf("%q, %v", got.Output, err)
	}
	profiled, err := New(t.Context(), Config{CacheDir: dir, Observers: Observers{Profile: func(string) Profiler { return nil }}})
	must(t, err)
	defer profiled.Close(context.Background())
	if m := load(t, profiled, wasm, Limits{}); len(m.Imports()) != 0 {
		t.Error("a module that is to be profiled is not prepared for that")
	}
}

// TestAnEntryThatIsDamagedIsMadeAgain: whatever an entry has become, the module loads.
func TestAnEntryThatIsDamagedIsMadeAgain(t *testing.T) {
	e := keeping(t)
	wasm := tiny(output("executed")).Bytes()
	key := e.key(Sum(wasm), DefaultLimits())
	damage := map[string]func() error{
		"cut":     func() error { return os.Truncate(key, 100) },
		"shorter": func() error { return os.Truncate(key, 10) },
		"empty":   func() error { return os.Truncate(key, 0) },
		"altered": func() error { return alter(key) },
		"no entry": func() error {
			sum := Sum([]byte("text"))
			return os.WriteFile(key, append(sum[:], "text"...), 0o600)
		},
		"a folder": func() error { return errors.Join(os.Remove(key), os.Mkdir(key, 0o700)) },
		"another module's": func() error {
			p := recalled(e, wasm, DefaultLimits())
			p.Digest[0]++
			e.cache.remember(key, p)
			return nil
		},
		"without its code": func() error { return os.RemoveAll(recalled(e, wasm, DefaultLimits()).Folder) },
	}
	for name, damage := range damage {
		load(t, e, wasm, Limits{})
		must(t, damage())
		if recalled(e, wasm, DefaultLimits()) != nil {
			t.Errorf("%s: it is found", name)
		}
		got, err := load(t, e, wasm, Limits{}).Call(t.Context(), Call{Input: []byte("x")}, &world{})
		if err != nil || string(got.Output) != "executed" {
			t.Errorf("%s: %q, %v", name, got.Output, err)
		}
		if name == "a folder" {
			must(t, os.Remove(key))
		} else if recalled(e, wasm, DefaultLimits()) == nil {
			t.Errorf("%s: it was not made again", name)
		}
	}
}
