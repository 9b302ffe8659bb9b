package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/hostiletest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// modules are what tenants upload: tools, programs, what multiplies on its way through the pipe, modules
// of every hostile family, each third byte of a tool changed, components and plug-ins, also broken ones.
func modules(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"nothing": nil, "text": []byte("no module")}
	tool := asksForTheTime()
	tool.Customs = []wasmtest.Custom{{Name: "name", Body: "\x01\x0a\x01\x01\x07of \x1b\xff\"it"}}
	whole := tool.Bytes()
	all["a tool"], all["a heavy start"] = whole, heavy().Bytes()
	for at := 0; at < len(whole); at += 3 {
		changed := bytes.Clone(whole)
		changed[at] ^= 0x41
		all[fmt.Sprintf("byte %d of a tool", at)] = changed
	}
	many := tiny()
	for range 995 {
		many.Globals = append(many.Globals, wasmtest.Global{Type: wasm.I32, Mutable: true})
	}
	all["globals"] = many.Bytes()
	many = tiny()
	for range 100_000 {
		many.Data = append(many.Data, wasmtest.Data{})
	}
	all["data of no bytes"] = many.Bytes()
	many = tiny()
	for range 30_000 {
		many.Funcs = append(many.Funcs, wasmtest.Func{Type: wasmtest.Type(":")})
	}
	all["functions"] = many.Bytes()
	many = tiny()
	for n := range 100 {
		many.Imports = append(many.Imports, wasmtest.Import{Module: fmt.Sprint(n, strings.Repeat("\x01", 500)), Name: strings.Repeat("\U0010ffff", 127), Type: wasmtest.Type(strings.Repeat("i", 128) + ":")})
	}
	all["imports that nobody has"] = many.Bytes()
	all["a program"] = (&wasmtest.Module{
		Memory: wasmtest.Pages(1), Exports: []wasmtest.Export{{Name: abi.ExportMemory, Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{{Export: abi.ExportStart, Type: wasmtest.Type(":"), Code: unreachable()}},
	}).Bytes()
	for _, family := range hostiletest.Loads() {
		all[family.Name] = family.Modules()[0]
	}
	files, err := filepath.Glob("../component/testdata/*.wasm")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d components, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[file] = b
		for part := 1; part < 4; part++ {
			all[fmt.Sprintf("%d/4 of %s", part, file)] = b[:len(b)*part/4]
		}
	}
	return all
}

// TestAProcessReadsAsThisOne: what a process links and reads is to the byte what this one does, and a
// refusal is the same in each of its members.
func TestAProcessReadsAsThisOne(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: starts many processes")
	}
	t.Parallel()
	refusals, limits := map[string]bool{}, sandbox.RewriteOptions{MemoryPages: 16, Depth: 1000}
	same := func(t *testing.T, want, got any, wantErr, gotErr error) {
		t.Helper()
		refused, _ := errors.AsType[*rewrite.Refusal](wantErr)
		there, _ := errors.AsType[*rewrite.Refusal](gotErr)
		if diff := cmp.Diff(refused, there); diff != "" || (wantErr == nil) != (gotErr == nil) {
			t.Errorf("%v, in this process %v\n%s", gotErr, wantErr, diff)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); wantErr == nil && diff != "" {
			t.Errorf("%.1000s", diff)
		}
		if refused != nil {
			refusals[refused.What] = true
		}
	}
	for name, b := range modules(t) {
		t.Run(name, func(t *testing.T) {
			module := b
			if component.Needed(b) {
				want, wantErr := component.Link(work.For(t.Context(), len(b)), b)
				size := 0
				got, gotErr := Compiler{Foreground: true}.Link(t.Context(), b, func(bytes int) error { size = bytes; return nil })
				same(t, want, got, wantErr, gotErr)
				if module = got; size != len(got) {
					t.Errorf("room for %d of %d bytes", size, len(got))
				}
			}
			for _, dir := range []string{"", t.TempDir()} {
				ask := func(found **sandbox.Prepared) func(*sandbox.Prepared) bool {
					return func(p *sandbox.Prepared) bool { *found = p; return false }
				}
				var asked, askedThere *sandbox.Prepared
				want, wantErr := sandbox.Read(t.Context(), 1, module, limits, dir, ask(&asked))
				got, gotErr := Compiler{Foreground: true}.Read(t.Context(), module, limits, dir, ask(&askedThere))
				same(t, want, got, wantErr, gotErr)
				if dir != "" && (asked != want || askedThere != got) {
					t.Error("another module is compiled than what is returned")
				}
			}
		})
	}
	if len(refusals) < 50 {
		t.Errorf("%d kinds of refusals", len(refusals))
	}
}

// TestALinkedModuleNeedsRoom: a module for which there is none is not taken from the process.
func TestALinkedModuleNeedsRoom(t *testing.T) {
	b, err := os.ReadFile("../component/testdata/values.wasm")
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no room")
	if module, err := workers(t, Config{}).Link(t.Context(), b, func(int) error { return full }); module != nil || err != full {
		t.Errorf("%d bytes, %v", len(module), err)
	}
}

// A client that hangs up ends the linking, and its place is free.
func TestLinkingEndsWithItsContext(t *testing.T) {
	e := workers(t, Config{MaxCalls: 1})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := e.Link(ctx, []byte("\x00asm\x0d\x00\x01\x00"), func(int) error { return nil }); err == nil {
		t.Error("linked after the end")
	}
	if n := len(children(t)); n > 0 {
		t.Errorf("%d processes are left", n)
	}
	if len(e.places) > 0 {
		t.Error("the place is not free")
	}
}

// TestReadingCostsThisProcessLittle: whatever a module becomes while it is gated, rewritten and compiled,
// the process that has it read allocates about what a host reserves for it.
func TestReadingCostsThisProcessLittle(t *testing.T) {
	fill := func(n int, add func(*wasmtest.Module)) []byte {
		m := tiny()
		m.Memory = wasmtest.Pages(300)
		for range n {
			add(m)
		}
		return m.Bytes()
	}
	loops := new(wasm.Asm)
	for range 20 {
		loops.Block(wasm.OpLoop, wasm.BlockEmpty).Op(wasm.OpEnd)
	}
	for name, module := range map[string][]byte{
		"loops": fill(30_000, func(m *wasmtest.Module) {
			m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: loops})
		}),
		"segments": fill(100_000, func(m *wasmtest.Module) { m.Data = append(m.Data, wasmtest.Data{}) }),
		"data":     fill(1, func(m *wasmtest.Module) { m.Data = append(m.Data, wasmtest.Data{Bytes: strings.Repeat("data", 4<<20)}) }),
		"names": fill(1, func(m *wasmtest.Module) {
			m.Customs = []wasmtest.Custom{{Name: "name", Body: strings.Repeat("\x01\x00", 4<<20)}}
		}),
	} {
		e := workers(t, Config{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := e.Load(t.Context(), module, sandbox.Limits{})
		runtime.ReadMemStats(&after)
		const reserved, list = 3, 16 << 20 // times its bytes, and the list of as many segments as the gate allows
		if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > reserved*uint64(len(module))+list {
			t.Errorf("%s: %d bytes for a module of %d, %v", name, got, len(module), err)
		}
	}
}
