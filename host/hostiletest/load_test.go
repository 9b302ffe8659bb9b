package hostiletest_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/host/hostiletest"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/worker"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/work"
)

func TestMain(m *testing.M) {
	worker.Main()
	os.Exit(m.Run())
}

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
