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

// The wanted documents have the members that each vendor documents.
func TestExport(t *testing.T) {
	const schema = `{"type":"object","properties":{"b":{"description":"<b>"},"a":{}}}`
	tools := []tool.Tool{raw{"weather", "Weather & more", schema}, raw{"boom", "", `{ "type": "object" }`}}
	for format, want := range map[tool.Format]string{
		tool.FormatOpenAI: `[{"type":"function","function":{"name":"weather","description":"Weather & more","parameters":` + schema + `}},` +
			`{"type":"function","function":{"name":"boom","parameters":{"type":"object"}}}]`,
		tool.FormatAnthropic: `[{"name":"weather","description":"Weather & more","input_schema":` + schema + `},` +
			`{"name":"boom","input_schema":{"type":"object"}}]`,
		tool.FormatGemini: `[{"functionDeclarations":[{"name":"weather","description":"Weather & more","parametersJsonSchema":` + schema + `},` +
			`{"name":"boom","parametersJsonSchema":{"type":"object"}}]}]`,
		tool.FormatBedrock: `[{"toolSpec":{"name":"weather","description":"Weather & more","inputSchema":{"json":` + schema + `}}},` +
			`{"toolSpec":{"name":"boom","inputSchema":{"json":{"type":"object"}}}}]`,
		tool.FormatMCP: `[{"name":"weather","description":"Weather & more","inputSchema":` + schema + `},` +
			`{"name":"boom","inputSchema":{"type":"object"}}]`,
	} {
		t.Run(string(format), func(t *testing.T) {
			got, err := tool.Export(format, tools)
			if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			for _, none := range [][]tool.Tool{nil, {}} {
				if got, err := tool.Export(format, none); err != nil || string(got) != "[]" {
					t.Errorf("without tools: %s, %v", got, err)
				}
			}
		})
	}
}

func TestExportRefuses(t *testing.T) {
	good := raw{"t", "", `{}`}
	for _, c := range []struct {
		name   string
		format tool.Format
		tools  []tool.Tool
		want   string
	}{
		{"a format that nobody has", "cohere", nil, `unknown format "cohere"`},
		{"two tools of one name", tool.FormatMCP, []tool.Tool{good, good}, `two tools are named "t"`},
		{"no schema", tool.FormatMCP, []tool.Tool{raw{"t", "", ""}}, `the schema of "t" is not a JSON object`},
		{"a schema that is null", tool.FormatMCP, []tool.Tool{raw{"t", "", "null"}}, "not a JSON object"},
		{"a schema that is a boolean", tool.FormatMCP, []tool.Tool{raw{"t", "", "true"}}, "not a JSON object"},
	} {
		if _, err := tool.Export(c.format, c.tools); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
