package agentfile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/internal/validate"
	"github.com/starling-host/starling/spec"
)

// TestSchemaAgrees has the schema judge the same files as the parser.
func TestSchemaAgrees(t *testing.T) {
	schema, err := validate.Compile(work.Trusted(t.Context()), spec.AgentSchema())
	if err != nil {
		t.Fatal(err)
	}
	judge := func(t *testing.T, text string) error {
		n, err := config.Parse("agent.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		return schema.Check(doc)
	}
	for name, c := range good(t) {
		if err := judge(t, c.text); err != nil {
			t.Errorf("%s: the schema refuses what the parser accepts: %v", name, err)
		}
	}
	for name, c := range bad {
		if err := judge(t, c.text); (err == nil) != c.unseen {
			t.Errorf("%s: the schema says %v", name, err)
		}
	}
}

// TestSchemaHasEveryKey finds keys that were added in one place only.
func TestSchemaHasEveryKey(t *testing.T) {
	var schema struct {
		Properties map[string]any
		Defs       map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	if err := json.Unmarshal(spec.AgentSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	var enum struct {
		OneOf []struct{ Enum []string }
	}
	text, err := json.Marshal(schema.Properties["provider"])
	if err == nil {
		err = json.Unmarshal(text, &enum)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := VendorNames()
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(names, enum.OneOf[0].Enum, sorted); diff != "" {
		t.Errorf("providers (-parser +schema):\n%s", diff)
	}
	for where, keys := range map[string]map[string]any{"": schema.Properties, "{wasm: a, %s: }": schema.Defs["module"].Properties, "{builtin: a, %s: }": schema.Defs["builtin"].Properties} {
		for key := range keys {
			text := minimal + key + ":\n"
			if where != "" {
				text = minimal + "tools: [" + fmt.Sprintf(where, key) + "]\n"
			}
			if _, err := Parse("a", []byte(text)); err == nil || strings.Contains(err.Error(), "unknown key") {
				t.Errorf("the schema has %q: %v", key, err)
			}
		}
	}
}
