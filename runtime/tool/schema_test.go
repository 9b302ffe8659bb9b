package tool_test

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/runtime/tool"
)

type address struct {
	Street string  `json:"street"`
	Zip    *string `json:"zip,omitempty"`
}

type node struct {
	Value any            `json:"value"`
	Next  *node          `json:"next"`
	Skip  *node          `json:"skip,omitempty"`
	Table map[string]int `json:"table"`
	Rows  [][]string     `json:"rows"`
	Addr  netip.Addr     `json:"addr"`
	When  *time.Time     `json:"when"`
	Sum   *big.Int       `json:"sum"`
	Raw   []byte         `json:"raw"`
	*address
}

// TestOutputsFitTheirSchema: the schema that a type is given accepts every value of it. Tools in Go,
// in modules and in the host, have such schemas, and the host checks outputs against them.
func TestOutputsFitTheirSchema(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, value := range map[string]any{
		"nothing set": node{},
		"everything set": node{
			Value: []int{1}, Next: &node{Next: &node{}}, Skip: &node{}, Table: map[string]int{"b": 1, "a": 2},
			Rows: [][]string{nil, {"x"}}, Addr: netip.MustParseAddr("::1"), When: &now, Sum: big.NewInt(1), Raw: []byte{1},
			address: &address{Street: "Main"},
		},
		"no slice": []string(nil), "no number": (*int)(nil), "a map": map[string]any{"a": nil}, "no fields": struct{}{}, "a byte": uint8(255),
	} {
		doc, err := schema.Output(reflect.TypeOf(value))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		output, err := json.Marshal(value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if doc == "" {
			continue // any value
		}
		compiled, err := tool.CompileSchema([]byte(doc))
		if err == nil {
			err = compiled.Check(output)
		}
		if err != nil {
			t.Errorf("%s: %s\ndoes not fit %s:\n%v", name, output, doc, err)
		}
	}
}
