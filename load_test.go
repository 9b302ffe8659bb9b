package starling_test

import (
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/wasmtest"
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
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasmtest.ExternMemory}},
		Funcs:   []wasmtest.Func{{Export: "_start", Type: wasmtest.Type(":"), Code: new(wasmtest.Asm)}},
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
