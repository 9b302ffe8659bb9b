package js_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
)

// runSubtle runs a case of testdata/subtle.js in a module, and returns its output and fuel.
func runSubtle(t *testing.T, m *sandbox.Module, name string) (string, uint64) {
	t.Helper()
	got, err := m.Call(t.Context(), sandbox.Call{Tool: "subtle", Input: []byte(
		`{"tool":"subtle","input":{"case":"` + name + `"},"context":{"run_id":"r","call_id":"c","attempt":1}}`)}, &jsWorld{})
	if err != nil {
		t.Fatal(name, err)
	}
	return string(got.Output), got.Meter.Fuel
}

// TestJavaScriptCrypto checks crypto.subtle against the vectors of the standards, against
// what Node has, and, where Node 20 departs from it, against the specification.
func TestJavaScriptCrypto(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	treetest.NeedsJS(t)
	wasm, said := build(t, jsSDK+"/testdata/subtle.js")
	if wasm == nil {
		t.Fatal(said)
	}
	m := loadJS(t, wasm, sandbox.Config{})
	node := exec.Command("node", "--input-type=module", "-e", `
		import tool from "./`+jsSDK+`/testdata/subtle.js";
		const names = ["lengths", "views", "random", "drawn", "verify", "copies", "keys", "derived", "errors"];
		const all = await Promise.all(names.map(async (name) => [name, JSON.stringify({ output: await tool.execute({ case: name }) })]));
		console.log(JSON.stringify(Object.fromEntries(all)));`)
	out, err := node.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := map[string]string{}
	if err := json.Unmarshal(out, &want); err != nil || len(want) != 9 {
		t.Fatalf("Node says %s (%v)", out, err)
	}
	want["standards"] = `{"output":51}`
	want["specified"] = `{"output":{"usages":["sign","verify"],"odd":"ffe0","failures":["NotSupportedError","TypeError","DataError","DataError",` +
		`"DataError","NotSupportedError","NotSupportedError","NotSupportedError","NotSupportedError","DataCloneError","TypeError"],` +
		`"messages":["there is no crypto.subtle.decrypt: there are digest, sign, verify, generateKey, importKey, exportKey, deriveBits, deriveKey",` +
		`"crypto.subtle.digest has SHA-1, SHA-256, SHA-384, SHA-512, and not MD5"]}}`
	for name, want := range want {
		if got, _ := runSubtle(t, m, name); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	got, fuel := runSubtle(t, loadJS(t, wasm, sandbox.Config{Machine: true}), "derived")
	if _, compiled := runSubtle(t, m, "derived"); got != want["derived"] || fuel != compiled {
		t.Errorf("the machine returns %s and spends %d, the compiler %d", got, fuel, compiled)
	}
}
