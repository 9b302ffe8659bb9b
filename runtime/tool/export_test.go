package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/tool"
)

// raw is a tool that is nothing but a description.
type raw struct{ name, description, schema string }

func (r raw) Name() string            { return r.name }
func (r raw) Description() string     { return r.description }
func (r raw) Schema() json.RawMessage { return json.RawMessage(r.schema) }
func (r raw) Execute(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}

func TestExportOpenAI(t *testing.T) {
	const schema = `{"type":"object","properties":{"b":{"description":"<b>"},"a":{}}}`
	want := `[{"type":"function","function":{"name":"weather","description":"Weather & more","parameters":` + schema + `}},` +
		`{"type":"function","function":{"name":"boom","parameters":{"type":"object"}}}]`
	got, err := tool.ExportOpenAI([]tool.Tool{raw{"weather", "Weather & more", schema}, raw{"boom", "", `{ "type": "object" }`}})
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, none := range [][]tool.Tool{nil, {}} {
		if got, err := tool.ExportOpenAI(none); err != nil || string(got) != "[]" {
			t.Errorf("without tools: %s, %v", got, err)
		}
	}
}

func TestExportRefuses(t *testing.T) {
	good := raw{"t", "", `{}`}
	for _, c := range []struct {
		name  string
		tools []tool.Tool
		want  string
	}{
		{"two tools of one name", []tool.Tool{good, good}, `two tools are named "t"`},
		{"no schema", []tool.Tool{raw{"t", "", ""}}, `the schema of "t" is not a JSON object`},
		{"a schema that is null", []tool.Tool{raw{"t", "", "null"}}, "not a JSON object"},
		{"a schema that is a boolean", []tool.Tool{raw{"t", "", "true"}}, "not a JSON object"},
	} {
		if _, err := tool.ExportOpenAI(c.tools); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
