package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/worker"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/hostiletest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// TestLoads takes every module of every family through the gate, and what passes
// through a compiler in a process with the bounds of a worker: nothing panics,
// every refusal says why, and an accepted module compiles within 30 seconds of
// processor time and 384 MiB, or its process dies alone.
func TestLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	families := hostiletest.Loads()
	if len(families) < 60 {
		t.Errorf("%d families", len(families))
	}
	seen := map[string]bool{}
	var refused, accepted, died atomic.Int64
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for _, family := range families {
		if seen[family.Name] || family.Attack == "" {
			t.Errorf("family %q is there twice, or does not say what it attacks", family.Name)
		}
		seen[family.Name] = true
		for i, module := range family.Modules() {
			_, err := rewrite.Rewrite(work.Trusted(context.Background()), module, rewrite.DefaultLimits(), rewrite.Options{})
			var refusal *rewrite.Refusal
			switch {
			case errors.As(err, &refusal) && refusal.What != "":
				refused.Add(1)
				continue
			case err != nil:
				t.Errorf("%s, module %d: %v is no refusal", family.Name, i, err)
				continue
			}
			accepted.Add(1)
			group.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				command, err := asCommand(module)
				if err != nil {
					t.Errorf("%s, module %d: %v", family.Name, i, err)
				}
				compiled, began := false, time.Now()
				_, err = worker.Compiler{CPU: 30 * time.Second, Memory: 384 << 20}.Read(context.Background(), command, sandbox.RewriteOptions{}, t.TempDir(), func(*sandbox.Prepared) bool {
					compiled = true
					return true
				})
				if !compiled {
					t.Errorf("%s, module %d: as a program it is refused: %v", family.Name, i, err)
				}
				if took := time.Since(began); took > time.Second {
					t.Logf("%s, module %d of %d bytes: compiled in %s", family.Name, i, len(module), took.Round(time.Millisecond))
				}
				if errors.As(err, &refusal) {
					died.Add(1)
					t.Logf("%s, module %d: %v", family.Name, i, err)
				} else if err != nil {
					t.Errorf("%s, module %d: %v", family.Name, i, err)
				}
			})
		}
	}
	group.Wait()
	t.Logf("%d families: %d modules refused, %d accepted, of which %d did not compile", len(families), refused.Load(), accepted.Load(), died.Load())
}

// asCommand returns a module that the gate accepts as a program: with a memory and a function
// () -> () that are exported, in place of its other exports.
func asCommand(b []byte) ([]byte, error) {
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		return nil, err
	}
	add := func(id wasm.SectionID, n int, item ...byte) {
		var items []byte
		if s := m.Section(id); s != nil {
			r := wasm.NewReader(s.Body, 0, len(s.Body))
			r.U32()
			items = s.Body[len(s.Body)-r.Len():]
		}
		m.SetBody(id, slices.Concat(wasm.AppendU32(nil, uint32(n+1)), items, item))
	}
	types := slices.Clone(m.Types)
	start := slices.IndexFunc(m.Funcs, func(t uint32) bool { return len(types[t].Params)+len(types[t].Results) == 0 })
	if start < 0 {
		start = len(m.Funcs)
		add(wasm.SectionType, len(types), 0x60, 0, 0)
		add(wasm.SectionFunction, len(m.Funcs), wasm.AppendU32(nil, uint32(len(types)))...)
		add(wasm.SectionCode, len(m.Code), 2, 0, byte(wasm.OpEnd))
	}
	if len(m.Memories) == 0 {
		m.SetBody(wasm.SectionMemory, []byte{1, 0, 0})
	}
	exports := append(wasm.AppendName([]byte{2}, abi.ExportMemory), byte(wasm.ExternMemory), 0)
	exports = append(wasm.AppendName(exports, abi.ExportStart), byte(wasm.ExternFunc))
	m.SetBody(wasm.SectionExport, wasm.AppendU32(exports, uint32(m.NumImportedFuncs()+start)))
	return m.Encode(), nil
}
