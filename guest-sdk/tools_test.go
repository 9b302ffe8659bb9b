package guestsdk_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// TestTools builds each tool of tools-wasm as a user does, passes it through the gate, and
// compares its imports from the host with what its README says. A module that
// grows beyond its limit has begun to link something large.
func TestTools(t *testing.T) {
	for _, c := range []struct {
		dir     string
		imports []string
		limit   int
	}{
		{"dice", []string{abi.ImportNow, abi.ImportRandom}, 4_000_000},
		{"customer-lookup", []string{abi.ImportHTTP, abi.ImportNow}, 4_000_000},
		{"json-transform", nil, 7_000_000},
	} {
		t.Run(c.dir, func(t *testing.T) {
			m, err := guest.Find(t.Context(), "tools-wasm/"+c.dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Wasm) > c.limit {
				t.Errorf("%d bytes, the limit is %d", len(m.Wasm), c.limit)
			}
			gated, err := sandbox.Rewrite(t.Context(), m.Wasm, sandbox.DefaultGateLimits(), sandbox.RewriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var imports []string
			for _, i := range gated.Info.Imports {
				if i.Module == abi.Version {
					imports = append(imports, i.Name)
				}
			}
			slices.Sort(imports)
			if diff := cmp.Diff(c.imports, imports); diff != "" {
				t.Error(diff)
			}
		})
	}
}
