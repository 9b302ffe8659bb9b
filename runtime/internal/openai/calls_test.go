package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/provider"
)

// response is a stream with pieces of tool calls, each in an event of its own.
func response(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[%s]}}]}\n\n", p)
	}
	b.WriteString("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n")
	return b.String()
}

// generated returns the generated id of the n-th call of the response to hello("m").
func generated(t *testing.T, n int) string {
	t.Helper()
	h, err := hello("m").Hash()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("call_%s_%d", h.String()[:16], n)
}

func TestToolCalls(t *testing.T) {
	g0, g1 := generated(t, 0), generated(t, 1)
	for _, tc := range []struct {
		name   string
		pieces []string
		want   []provider.StreamChunk
	}{
		{"the name after the arguments", []string{
			`{"index":0,"id":"a","function":{"arguments":"{\"x\":"}}`, `{"index":0,"function":{"arguments":"1}"}}`, `{"index":0,"function":{"name":"f"}}`,
		}, []provider.StreamChunk{start("a", "f"), delta("a", `{"x":1}`), stop("a")}},
		{"the id last", []string{
			`{"index":0,"function":{"name":"f","arguments":"{"}}`, `{"index":0,"function":{"arguments":"}"}}`, `{"index":0,"id":"a"}`,
		}, []provider.StreamChunk{start("a", "f"), delta("a", "{}"), stop("a")}},
		{"id and name in every piece", []string{
			`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`, `{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}`,
		}, []provider.StreamChunk{start("a", "f"), delta("a", "{"), delta("a", "}"), stop("a")}},
		{"the name in every piece, and no id", []string{
			`{"index":0,"function":{"name":"f","arguments":"{"}}`, `{"index":0,"function":{"name":"f","arguments":"}"}}`,
		}, []provider.StreamChunk{start(g0, "f"), delta(g0, "{}"), stop(g0)}},
		{"another id in every piece", []string{
			`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`, `{"index":0,"id":"b","function":{"arguments":"}"}}`,
		}, []provider.StreamChunk{start("a", "f"), delta("a", "{"), delta("a", "}"), stop("a")}},
		{"no arguments", []string{`{"index":0,"id":"a","function":{"name":"f"}}`}, []provider.StreamChunk{start("a", "f"), stop("a")}},
		{"arguments that are null", []string{`{"index":0,"id":"a","function":{"name":"f","arguments":null}}`}, []provider.StreamChunk{start("a", "f"), stop("a")}},
		{"arguments that are an object", []string{`{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}`}, []provider.StreamChunk{start("a", "f"), delta("a", `{"x":1}`), stop("a")}},
		{"whole calls without ids", []string{
			`{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"g","arguments":"{}"}}`,
		}, []provider.StreamChunk{start(g0, "f"), delta(g0, "{}"), stop(g0), start(g1, "g"), delta(g1, "{}"), stop(g1)}},
		{"whole calls without ids and with one index", []string{
			`{"index":0,"function":{"name":"f","arguments":"{}"}}`, `{"index":0,"function":{"name":"f","arguments":"{}"}}`,
		}, []provider.StreamChunk{start(g0, "f"), delta(g0, "{}"), stop(g0), start(g1, "f"), delta(g1, "{}"), stop(g1)}},
		{"whole calls without indexes", []string{
			`{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{}"}}`,
		}, []provider.StreamChunk{start("a", "f"), delta("a", "{}"), start("b", "f"), delta("b", "{}"), stop("a"), stop("b")}},
		{"pieces without indexes", []string{
			`{"id":"a","function":{"name":"f","arguments":"{"}}`, `{"function":{"arguments":"}"}}`,
			`{"id":"b","function":{"name":"f"}}`, `{"id":"b","function":{"arguments":"{"}}`, `{"function":{"arguments":"}"}}`,
		}, []provider.StreamChunk{
			start("a", "f"), delta("a", "{"), delta("a", "}"), start("b", "f"), delta("b", "{"), delta("b", "}"), stop("a"), stop("b"),
		}},
		{"neither an index nor an id, until late", []string{
			`{"function":{"name":"f","arguments":"{}"}}`, `{"id":"a","function":{"name":""}}`, `{"function":{"name":"g"}}`,
		}, []provider.StreamChunk{start("a", "f"), delta("a", "{}"), stop("a"), start(g1, "g"), stop(g1)}},
		{"an id twice", []string{
			`{"index":0,"id":"a","function":{"name":"f"}}`, `{"index":1,"id":"a","function":{"name":"g"}}`, `{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}`,
		}, []provider.StreamChunk{start("a", "f"), start(g1, "g"), delta(g1, "{}"), stop("a"), stop(g1)}},
		{"indexes that do not begin at 0", []string{
			`{"index":7,"id":"a","function":{"name":"f"}}`, `{"index":3,"id":"b","function":{"name":"g"}}`, `{"index":7,"function":{"arguments":"{}"}}`,
		}, []provider.StreamChunk{start("a", "f"), start("b", "g"), delta("a", "{}"), stop("a"), stop("b")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := stream(t.Context(), hello("m"), response(tc.pieces...))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, got, append(tc.want, end("tool_calls", "")))
		})
	}
}

// TestGeneratedIDs checks that a generated id is the same for the same request and
// another one after the next turn, as ids have to be unique in a run.
func TestGeneratedIDs(t *testing.T) {
	body := response(`{"index":0,"function":{"name":"f","arguments":"{}"}}`)
	id := func(req *provider.Request) string {
		chunks, err := stream(t.Context(), req, body)
		if err != nil {
			t.Fatal(err)
		}
		return chunks[0].ToolUse.CallID
	}
	first, again := id(hello("m")), id(hello("m"))
	later := hello("m")
	later.Messages = append(later.Messages, provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: first, Content: "1"}})
	if next := id(later); first != again || next == first {
		t.Errorf("got %s, %s, and then %s", first, again, next)
	}
}

func TestToolCallsThatMakeNoSense(t *testing.T) {
	many := make([]string, 1025)
	for i := range many {
		many[i] = fmt.Sprintf(`{"index":%d,"id":"%d","function":{"name":"f"}}`, i, i)
	}
	big := strings.Repeat("x", 9<<20)
	for _, tc := range []struct{ name, body, want string }{
		{"too many", response(many...), "more than 1024"},
		{"another name", response(`{"index":0,"id":"a","function":{"name":"f"}}`, `{"index":0,"function":{"name":"g"}}`), `from "f" to "g"`},
		{"arguments for nobody", response(`{"index":0,"function":{"arguments":"`+big+`"}}`, `{"index":0,"function":{"arguments":"`+big+`"}}`), "without an id or a name"},
		{"after the end", strings.Replace(response(), "data: [DONE]", response(`{"index":0,"id":"a","function":{"name":"f"}}`), 1), "after the finish_reason"},
		{"an index that is a text", response(`{"index":"0","id":"a","function":{"name":"f"}}`), "index"},
	} {
		if _, err := stream(t.Context(), hello("m"), tc.body); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q in it", tc.name, err, tc.want)
		}
	}
}

// FuzzStream checks that no body makes a stream that breaks the contract.
func FuzzStream(f *testing.F) {
	f.Add(response(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`, `{"id":"a","function":{"name":"f"}}`))
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{}}\n\ndata: [DONE]\n\n")
	f.Add("data: {\"error\":{\"code\":429}}\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		chunks, err := stream(t.Context(), hello("m"), body)
		open := map[string]bool{}
		for i, c := range chunks {
			if (c.Kind == provider.ChunkEnd) != (err == nil && i == len(chunks)-1) {
				t.Fatalf("chunk %d of %d is %v, then %v", i+1, len(chunks), c.Kind, err)
			}
			if c.ToolUse == nil {
				continue
			}
			known, begins := open[c.ToolUse.CallID], c.Kind == provider.ChunkToolUseStart
			if known == begins || begins && (c.ToolUse.CallID == "" || c.ToolUse.Name == "") {
				t.Fatalf("chunk %d is %v of %+v", i+1, c.Kind, c.ToolUse)
			}
			open[c.ToolUse.CallID] = true
		}
		if err == nil && len(chunks) == 0 {
			t.Fatal("no chunks and no error")
		}
	})
}
