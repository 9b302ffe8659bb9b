package tools_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/registry"
	"github.com/starling-host/starling/host/rewrite"
)

// TestModules builds each tool as a user does, passes it through the gate, and
// compares the doors that it asks for with what its README says. A module that
// grows beyond its limit has begun to link something large.
//
// Json-transform needs a wider gate than the default: gojq builds the syntax
// trees of jq's own functions in one Go function of 310 KB, 3,142 blocks deep.
func TestModules(t *testing.T) {
	wide := rewrite.DefaultLimits()
	wide.BodyBytes, wide.Nesting, wide.Blocks = 512<<10, 4096, 8192
	for _, c := range []struct {
		dir   string
		doors []string
		limit int
		gate  rewrite.Limits
	}{
		{"dice", []string{abi.ImportNow, abi.ImportRandom}, 4_000_000, rewrite.DefaultLimits()},
		{"customer-lookup", []string{abi.ImportHTTP, abi.ImportNow}, 4_000_000, rewrite.DefaultLimits()},
		{"json-transform", nil, 7_000_000, wide},
	} {
		t.Run(c.dir, func(t *testing.T) {
			m, err := registry.Open(t.Context(), c.dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Wasm) > c.limit {
				t.Errorf("%d bytes, the limit is %d", len(m.Wasm), c.limit)
			}
			info, err := rewrite.Check(m.Wasm, c.gate)
			if err != nil {
				t.Fatal(err)
			}
			var doors []string
			for _, i := range info.Imports {
				if i.Module == abi.Version {
					doors = append(doors, i.Name)
				}
			}
			slices.Sort(doors)
			if diff := cmp.Diff(c.doors, doors); diff != "" {
				t.Error(diff)
			}
		})
	}
}
