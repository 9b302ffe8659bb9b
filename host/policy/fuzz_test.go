package policy

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/runtime/egress"
)

// FuzzParse reads anything as a policy, as tenants may send it: it is refused with a
// place, or it is a policy that decides, the same one each time.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../examples/policy/policy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(example), full, "version: \"1.0\"\n", "{\"version\": \"1.0\", \"permissions\": {\"tools\": {}}}",
		"version: \"1.0\"\npermissions: {tools: {\"*\": {arguments: {type: object, properties: {a: {type: array, items: {type: object, properties: {b: {type: number, minimum: 1e3, maximum: 1e308, enum: [1, 1.0, {a: [b]}]}, c: {type: string, pattern: \"^a{2,3}$\"}}}}}}}}}\n",
		"version: \"1.0\"\npermissions: {network: {allow: [{host: \".a.test\", ports: [1, 65535], paths: [\"/%2A/**\"], max_bytes: 1GiB}]}}\n",
		"version: \"1.0\"\nresources: {limits: {fuel: 9223372T, memory: 4GiB, deadline: 1h}}\n",
		"version: \"1.0\"\nsecrets: [{name: A, audience: [a.test, \"b.test:81\"], query: key}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("p.yaml", data)
		if err != nil {
			if _, ok := errors.AsType[*config.Error](err); !ok {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		again, err := Parse("other.yaml", bytes.Clone(data))
		if err != nil || again.Digest() != p.Digest() {
			t.Fatalf("read again it is another one: %v", err)
		}
		for _, target := range []string{"https://api.example.com/v1/charges?x=1", "http://127.0.0.1:8080/"} {
			access, err := (&egress.Request{Method: "POST", URL: target}).Access()
			if err != nil {
				t.Fatal(err)
			}
			q := Request{Access: access, Tool: "charge", Bytes: 100}
			alone, both := Decide(p, nil, q, nil), Decide(p, again, q, nil)
			if len(alone.Verdicts) == 0 || both.Allowed() && !alone.Allowed() {
				t.Fatalf("%s: %v alone, %v twice", target, alone.Verdicts, both.Verdicts)
			}
		}
		DecideCall(p, again, "charge", []byte(`{"a":[{"b":1.5}],"amount":10000,"currency":"eur"}`))
	})
}
