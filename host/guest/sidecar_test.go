package guest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/work"
)

func TestProgramReceives(t *testing.T) {
	stdin := "{text}"
	schema := []byte(`{"type":"object"}`)
	for _, c := range []struct {
		name             string
		p                program
		input, variables string
		args, env        []string
		stdin            string
		fails            string
	}{
		{name: "by itself", input: `{"args":["-r",".a"],"stdin":"x"}`, args: []string{"-r", ".a"}, stdin: "x"},
		{name: "nothing", input: `{}`},
		{name: "behind its own", p: program{Args: [][]string{{"-c"}, {"{a}"}}}, input: `{"args":["b"]}`, args: []string{"-c", "{a}", "b"}},
		{name: "the document", p: program{InputSchema: schema}, input: `{"a": 1}`, stdin: `{"a":1}`},
		{name: "a list, a number, a missing one", p: program{InputSchema: schema, Args: [][]string{{"{list}"}, {"-n{n}"}, {"-m{m}{n}"}, {"-x", "{m}"}, {"-y", "{n}"}}}, input: `{"list":["a",1],"n":2}`, args: []string{"a", "1", "-n2", "-y", "2"}},
		{name: "standard input", p: program{InputSchema: schema, Stdin: &stdin}, input: `{"text":"a\nb"}`, stdin: "a\nb"},
		{name: "variables", input: `{}`, variables: `{"b":{"n":1},"a":"x","c=":"x","d":"\u0000"}`, env: []string{"a=x", `b={"n":1}`}},
		{name: "a zero byte", input: `{"args":["\u0000"]}`, fails: "zero byte"},
		{name: "a template that grows", p: program{InputSchema: schema, Args: [][]string{{strings.Repeat("{a}", 1000)}}}, input: `{"a":"` + strings.Repeat("x", 100) + `"}`, fails: "of more than 1000 bytes"},
		// Empty words have no bytes, so only their number tells that they multiply.
		{name: "empty words, uses times", p: program{InputSchema: schema, Args: slices.Repeat([][]string{{"{a}"}}, 1000)}, input: `{"a":[""` + strings.Repeat(`,""`, 10_000) + `]}`, fails: work.ErrExceeded.Error()},
		{name: "empty texts, uses times", p: program{InputSchema: schema, Args: [][]string{{strings.Repeat("{a}", 1_000_000)}}}, input: `{"a":""}`, fails: work.ErrExceeded.Error()},
		{name: "many uses of nothing", p: program{InputSchema: schema, Args: slices.Repeat([][]string{{"{a}"}}, 10_000)}, input: `{"a":[]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := parsed(t, c.input)
			call := sandbox.Call{Input: doc.JSON}
			err := c.p.receive(work.New(t.Context(), work.ForSize(len(doc.JSON))), &call, doc, []byte(c.variables), 1000)
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatal(err)
			}
			if err == nil && (!slices.Equal(call.Args, c.args) || !slices.Equal(call.Env, c.env) || string(call.Input) != c.stdin) {
				t.Errorf("got %q, %q, %q", call.Args, call.Env, call.Input)
			}
		})
	}
}

// TestSidecarOfManyTools: each tool of a sidecar is looked for in the module's list.
func TestSidecarOfManyTools(t *testing.T) {
	side := &registry.Sidecar{Tools: map[string]registry.SidecarTool{}}
	var listed []string
	for i := range 3000 {
		name := fmt.Sprintf("t%d", i)
		side.Tools[name] = registry.SidecarTool{Description: "x"}
		listed = append(listed, fmt.Sprintf(`{"name":%q,"description":"","input_schema":{"type":"object"}}`, name))
	}
	doc := []byte(`{"tools":[` + strings.Join(listed, ",") + `]}`)
	if _, err := withSidecar(work.New(t.Context(), work.ForSize(len(doc))), doc, side, ""); err != nil {
		t.Error("a list of tools and a sidecar of each:", err)
	}
	if _, err := withSidecar(work.New(t.Context(), work.Limits{Steps: 3000 * 2999, Bytes: 1 << 20}), doc, side, ""); !errors.Is(err, work.ErrExceeded) {
		t.Error(err)
	}
}
