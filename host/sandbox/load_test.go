package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

func TestLoadTellsWhatAModuleIs(t *testing.T) {
	binary := tiny(output("executed"), "now", "fd_write", "fd_write", "clock_time_get").Bytes()
	m := load(t, compiler(), binary, Limits{Fuel: 5})
	if m.ABI() != abi.Version || m.Digest() != Sum(binary) {
		t.Errorf("abi %s, digest %s", m.ABI(), m.Digest())
	}
	want := []string{"starling:v1.now", "wasi_snapshot_preview1.clock_time_get", "wasi_snapshot_preview1.fd_write"}
	if diff := cmp.Diff(want, m.Imports()); diff != "" {
		t.Error(diff)
	}
	limits := DefaultLimits()
	limits.Fuel = 5
	if diff := cmp.Diff(limits, m.Limits()); diff != "" {
		t.Error(diff)
	}
	if command := load(t, compiler(), wasiCommand(nil), Limits{}); command.ABI() != abi.Command {
		t.Errorf("a program is %s", command.ABI())
	}
}

// wasiCommand is a WASI command with the given _start.
func wasiCommand(start *wasm.Asm, imports ...string) []byte {
	m := tiny(nil, imports...)
	m.Funcs = []wasmtest.Func{{Export: abi.ExportStart, Type: wasmtest.Type(":"), Code: start}}
	return m.Bytes()
}

func TestLoadRefusesWhatIsNoTool(t *testing.T) {
	without := func(edit func(m *wasmtest.Module)) []byte {
		m := tiny(output("executed"))
		edit(m)
		return m.Bytes()
	}
	tests := []struct {
		name   string
		module []byte
		want   string
	}{
		{"nothing", nil, "malformed"},
		{"an empty module", (&wasmtest.Module{}).Bytes(), "neither starling_describe and starling_execute nor _start"},
		{"no memory", without(func(m *wasmtest.Module) { m.Exports = nil }), "does not export memory"},
		{"memory that is a function", without(func(m *wasmtest.Module) { m.Exports[0].Kind = wasm.ExternFunc }), "memory is a func"},
		{"no allocator and no description", without(func(m *wasmtest.Module) { m.Funcs[0].Export, m.Funcs[1].Export = "", "" }),
			"does not export starling_alloc, it does not export starling_describe"},
		{"execute of another type", without(func(m *wasmtest.Module) {
			m.Funcs[2].Type, m.Funcs[2].Code = wasmtest.Type("ii:i"), asm().I32(0)
		}), "starling_execute is (i32, i32) -> i32, not (i32, i32) -> i64"},
		{"_initialize of another type", without(func(m *wasmtest.Module) {
			m.Funcs = append(m.Funcs, wasmtest.Func{Export: "_initialize", Type: wasmtest.Type("i:"), Code: asm()})
		}), "_initialize is (i32) -> (), not () -> ()"},
		{"a command without memory", (&wasmtest.Module{Funcs: []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":")}}}).Bytes(),
			"not a WASI command: it does not export memory"},
		{"a foreign import", without(func(m *wasmtest.Module) {
			m.Imports = []wasmtest.Import{{Module: "env", Name: "system", Type: wasmtest.Type("i:i")}}
		}), `"env" "system"`},
		{"the host's own import", without(func(m *wasmtest.Module) {
			m.Imports = []wasmtest.Import{{Module: rewrite.RefillModule, Name: rewrite.RefillName, Type: wasmtest.Type(":")}}
		}), rewrite.RefillModule},
		{"4 GiB of memory", without(func(m *wasmtest.Module) { m.Memory = wasmtest.Pages(65536) }), "pages of memory"},
		{"a body of the wrong type", tiny(asm().I32(1)).Bytes(), "the engine cannot compile it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := compiler().Load(t.Context(), tt.module, Limits{})
			if _, ok := errors.AsType[*rewrite.Refusal](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want a refusal with %q", err, tt.want)
			}
		})
	}
}

func TestLoadRefusesLimitsThatItCannotKeep(t *testing.T) {
	for _, l := range []Limits{{MemoryPages: 65537}, {Depth: 1<<20 + 1}, {Fuel: 1 << 63}, {TimeoutMs: -1}, {TimeoutMs: 1 << 62}} {
		if _, err := compiler().Load(t.Context(), tiny(output("executed")).Bytes(), l); err == nil || !strings.HasPrefix(err.Error(), "sandbox: a ") {
			t.Errorf("%+v: error %v", l, err)
		}
	}
}

func TestDescribeReturnsTheDescription(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		doc, err := load(t, e, tiny(output("executed")).Bytes(), Limits{OutputBytes: 1}).Describe(t.Context()) // which bounds calls
		if err != nil || string(doc) != "described" {
			t.Errorf("%q, %v", doc, err)
		}
	})
	if _, err := load(t, compiler(), wasiCommand(nil), Limits{}).Describe(t.Context()); err == nil {
		t.Error("a command was described")
	}
}

func TestDescribeSeesTheSameSealedWorldEachTime(t *testing.T) {
	first, err := goTool(t, false).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, _ := goTool(t, false).Describe(t.Context())
	other, _ := goTool(t, true).Describe(t.Context())
	if string(first) != string(second) || string(first) != string(other) || !strings.Contains(string(first), `"time":"2000-01-01T00:00:00.`) {
		t.Errorf("%s\n%s\n%s", first, second, other)
	}
}

func TestCloseWaitsForTheCallInProgress(t *testing.T) {
	m := load(t, compiler(), tiny(asm().I32(0).I32(1).I32(0).I32(0).Index(wasm.OpCall, 0).Op(wasm.OpDrop).I64(0), "http").Bytes(), Limits{})
	closed := make(chan bool)
	w := &world{http: func(string) (string, abi.Status) {
		go func() { m.Close(context.Background()); close(closed) }()
		for { // until Close has begun
			if _, err := m.Call(context.Background(), Call{}, nil); err == ErrClosed {
				break
			}
		}
		select {
		case <-closed:
			t.Error("Close has returned during a call")
		default:
		}
		return "", abi.StatusDenied
	}}
	if _, err := m.Call(t.Context(), Call{Input: []byte("x")}, w); err != nil {
		t.Error(err)
	}
	<-closed
}

func TestCloseTurnsLaterCallersAway(t *testing.T) {
	e := mustEngine(Config{})
	binary := tiny(output("executed"), "now").Bytes()
	one, two := load(t, e, binary, Limits{}), load(t, e, binary, Limits{})
	if err := errors.Join(one.Close(t.Context()), one.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Call(t.Context(), Call{}, &world{}); err != ErrClosed {
		t.Errorf("a closed module: %v", err)
	}
	if _, err := two.Call(t.Context(), Call{Input: []byte("x")}, &world{}); err != nil {
		t.Errorf("the same bytes, loaded twice and closed once: %v", err)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Call(t.Context(), Call{}, &world{}); err != ErrClosed {
		t.Errorf("a module of a closed engine: %v", err)
	}
	if _, err := two.Describe(t.Context()); err != ErrClosed {
		t.Errorf("a module of a closed engine: %v", err)
	}
	if _, err := e.Load(t.Context(), binary, Limits{}); err != ErrClosed {
		t.Errorf("a closed engine: %v", err)
	}
}
