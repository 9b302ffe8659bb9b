package receipt_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
)

// TestCostOfBundles grows each part of a bundle that another part could multiply, and requires that the
// work grows as the bytes do.
func TestCostOfBundles(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	wasm := []byte("module")
	module := canon.Sum(wasm)
	ref := event.ToolSchemaRef{Name: "dice", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: module[:], ABI: "starling:v1", CostTable: 1}}
	run := func(id string, calls int, started event.RunStarted) []event.Event {
		c := &logtest.Chain{RunID: id, Clock: 1_700_000_000_000_000_000}
		started.SchemaVersion, started.Goal = 1, "call"
		events := []event.Event{c.Next(started)}
		for i := range calls {
			id := fmt.Sprintf("c%d", i)
			events = append(events, c.Next(event.ToolCallScheduled{CallID: id, TurnID: "direct", ToolName: "dice", Args: raw(t, `{}`), Attempt: 1}),
				c.Next(event.ToolCallCompleted{CallID: id, Result: raw(t, `4`), Attempt: 1}))
		}
		return append(events, c.Complete())
	}
	refs := func(n int) (all []event.ToolSchemaRef) {
		for range n {
			all = append(all, ref)
		}
		return all
	}
	for name, grow := range map[string]func(n int) [][]event.Event{
		"calls": func(n int) [][]event.Event {
			return [][]event.Event{run("r", n, event.RunStarted{ToolSchemas: refs(1)})}
		},
		"calls and tools of a name": func(n int) [][]event.Event {
			return [][]event.Event{run("r", n, event.RunStarted{ToolSchemas: refs(n)})}
		},
		"runs of one module": func(n int) (all [][]event.Event) {
			for i := range n {
				all = append(all, run(fmt.Sprint("r", i), 1, event.RunStarted{ToolSchemas: refs(3)}))
			}
			return all
		},
		"calls and what is delegated": func(n int) [][]event.Event {
			delegation := make([][]byte, n)
			for i := range delegation {
				delegation[i] = make([]byte, sha256.Size)
			}
			return [][]event.Event{run("r", 10, event.RunStarted{ToolSchemas: refs(1), Caller: &event.Caller{KeyID: "k", Delegation: delegation}})}
		},
	} {
		var each []float64
		for _, n := range []int{10, 80} {
			b := seal.Bundle{Runs: grow(n), Modules: map[canon.Hash][]byte{module: wasm}}
			receipts := 0
			for i, events := range b.Runs {
				statements, err := receipt.Of(events, must(b.Leaf(i)), receipt.Options{Module: func(canon.Hash) ([32]byte, bool) { return sha256.Sum256(wasm), true }})
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range statements {
					r, err := s.Sign(key)
					if err != nil {
						t.Fatal(err)
					}
					b.Receipts = append(append(b.Receipts, document(t, r)...), '\n')
					receipts++
				}
			}
			file, err := b.Bytes()
			if err != nil {
				t.Fatal(name, err)
			}
			opened, _, err := seal.OpenBundle(t.Context(), file)
			if err != nil {
				t.Fatal(name, err)
			}
			if got, _, err := receipt.CheckBundle(opened, trust); got != receipts || err != nil {
				t.Fatalf("%s: %d of %d receipts: %v", name, got, receipts, err)
			}
			each = append(each, float64(opened.Work().Steps())/float64(len(file)))
		}
		if each[1] > 1.5*each[0] {
			t.Errorf("%s: %.3f steps a byte, of eight times the input %.3f", name, each[0], each[1])
		}
	}
}

// TestModulesOfABundle: a module that a bundle lacks has no digest that a receipt could claim.
func TestModulesOfABundle(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	trust, _ := seal.Trust(key.VKey())
	for _, has := range []bool{true, false} {
		b := seal.Bundle{Runs: runs(t)[2:], Modules: map[canon.Hash][]byte{}}
		if has {
			b.Modules[canon.Sum([]byte("module"))] = []byte("module")
		}
		for claim, sum := range map[string][32]byte{"the module": sha256.Sum256([]byte("module")), "no bytes": sha256.Sum256(nil), "": {}} {
			statements, err := receipt.Of(b.Runs[0], must(b.Leaf(0)), receipt.Options{Module: func(canon.Hash) ([32]byte, bool) { return sum, claim != "" }})
			if err != nil {
				t.Fatal(err)
			}
			r, err := statements[0].Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			b.Receipts = append(document(t, r), '\n')
			_, _, err = receipt.CheckBundle(b, trust)
			if want := claim == "" || has && claim == "the module"; (err == nil) != want {
				t.Errorf("the bundle has the module: %t; a receipt with the SHA-256 of %q: %v", has, claim, err)
			}
		}
	}
}

// TestWithoutAKey: nothing of a receipt needs a policy, and a nil policy is one that trusts nobody.
func TestWithoutAKey(t *testing.T) {
	nobody, err := seal.Trust()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range sealed(t) {
		for _, policy := range []*seal.Policy{nil, {}, nobody} {
			r, err := receipt.Parse(t.Context(), v.Receipt)
			if err != nil {
				t.Fatal(err)
			}
			c, err := r.Check(t.Context(), policy)
			if err != nil || c.SignedBy != "" || (c.Checkpoint != nil) != strings.HasSuffix(v.Name, "checkpoint") {
				t.Errorf("%s: %+v, %v", v.Name, c, err)
			}
		}
	}
	if keys := (*seal.Policy)(nil).Logs(); keys != nil {
		t.Error(keys)
	}
}
