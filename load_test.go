package starling_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// TestAPolicyLeavesTheDepthToTheEngine: an interpreter nests fewer calls than a compiler. With
// a limit that it cannot keep, a tool that nests too deep fails as if the host were at fault.
func TestAPolicyLeavesTheDepthToTheEngine(t *testing.T) {
	p, err := policy.Parse("p.yaml", []byte("version: \"1.0\"\nresources:\n  limits: {fuel: 1000000}\n"))
	if err != nil {
		t.Fatal(err)
	}
	command := (&wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs:   []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasm.Asm)}},
	}).Bytes()
	db := starling.Over(nil, starling.Options{Engine: starling.EngineOptions{Kind: starling.Interpreter}})
	defer db.Close()
	var depths []uint32
	for _, o := range []starling.ToolOptions{{}, {Policy: p}} {
		tool, err := db.LoadBytes(t.Context(), "command", command, o)
		if err != nil {
			t.Fatal(err)
		}
		depths = append(depths, tool.Sandbox().Limits.Depth)
		if o.Policy != nil && tool.Sandbox().Limits.Fuel != 1_000_000 {
			t.Errorf("the policy leaves %d units of fuel", tool.Sandbox().Limits.Fuel)
		}
	}
	if depths[0] != depths[1] {
		t.Errorf("a depth of %d without a policy, and of %d with one", depths[0], depths[1])
	}
}

// TestAComponentIsATool loads one from its bytes and from its file, which are the same module. A call
// is recorded, and replays from the database alone.
func TestAComponentIsATool(t *testing.T) {
	const file = "host/internal/component/testdata/values.wasm"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	db, err := starling.Open(t.Context(), filepath.Join(t.TempDir(), "component.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	o := starling.ToolOptions{Name: "upper"}
	tool, err := db.LoadBytes(t.Context(), "values", b, o)
	if err != nil {
		t.Fatal(err)
	}
	same, err := db.Load(t.Context(), file, o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(tool.Sandbox().Module, same.Sandbox().Module) {
		t.Error("the bytes and the file are two modules")
	}
	run, err := tool.Call(t.Context(), `{"text":"ab"}`)
	if err != nil || run.Output() != `"AB"` {
		t.Fatalf("%+v %v", run, err)
	}
	if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
		t.Errorf("the replay: %+v %v", verdict, err)
	}
}

// counted counts how often modules are stored, and how often a run waits for the disk.
type counted struct {
	store.Database
	stored, synced int
}

func (c *counted) PutModule(ctx context.Context, wasm []byte) (canon.Hash, error) {
	c.stored++
	return c.Database.PutModule(ctx, wasm)
}

func (c *counted) Sync(ctx context.Context, runID string) error {
	c.synced++
	return c.Database.Sync(ctx, runID)
}

// TestCallsInSequence: a program calls run_js again and again, whose module has
// 640 KB. The module is stored once, and each run waits for the disk once, at its end, since
// it has no effects. Each replays from its database.
func TestCallsInSequence(t *testing.T) {
	file, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "calls.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := &counted{Database: file}
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	tool, err := db.Load(t.Context(), starling.RunJS, starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		run, err := tool.Call(t.Context(), `{"code":"return input.a + input.b","input":{"a":1,"b":2}}`)
		if err != nil || run.Output() != "3" {
			t.Fatal(run, err)
		}
		if verdict, err := db.Replay(t.Context(), run.ID); err != nil || !verdict.Identical() {
			t.Errorf("replay: %v, %v", verdict, err)
		}
	}
	if log.stored != 1 || log.synced != 3 {
		t.Errorf("the module was stored %d times, and 3 runs waited for the disk %d times", log.stored, log.synced)
	}
}
