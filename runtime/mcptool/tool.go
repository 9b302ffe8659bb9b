package mcptool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// effectPrefix begins the names of this package's effects in the log.
const effectPrefix = "mcp/"

// methods are the methods whose requests are recorded as calls of a tool, with the schemas of the
// inputs.
var methods = map[string]json.RawMessage{
	"resources/read": json.RawMessage(`{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"]}`),
	"prompts/get": json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"},` +
		`"arguments":{"type":"object","additionalProperties":{"type":"string"}}},"required":["name"]}`),
	"tasks/get": aboutTask, "tasks/result": aboutTask, "tasks/update": aboutTask,
}

var aboutTask = json.RawMessage(`{"type":"object","properties":{"taskId":{"type":"string"}},"required":["taskId"]}`)

var errOffline = errors.New("there is no server: the client is for replaying runs")

// remoteTool is one tool of a server.
type remoteTool struct {
	client *Client
	remote string // the server's name for it
	name   string
	method string // of the requests of a Method tool; then remote is the same
	schema json.RawMessage
	said   Definition
	hash   canon.Hash          // of the definition
	input  func() *tool.Schema // compiled; nil if unsupported
}

// Name implements [tool.Tool].
func (t *remoteTool) Name() string { return t.name }

// Description implements [tool.Tool].
func (t *remoteTool) Description() string { return t.said.Description }

// Schema implements [tool.Tool].
func (t *remoteTool) Schema() json.RawMessage { return t.schema }

// OutputSchema returns the JSON Schema of the output: the result of the protocol, with the
// server's schema of its structured content. References in the latter begin at its own
// root, so its definitions stay there.
func (t *remoteTool) OutputSchema() json.RawMessage {
	if t.client.options.TextOnly {
		return json.RawMessage(`{"type":"string"}`)
	}
	const blocks = `{"type":"array","items":{"type":"object","properties":{"type":{"type":"string"},"text":{"type":"string"}},"required":["type"]}}`
	structured, required := t.said.Output, `"content","structuredContent"`
	if structured == nil {
		structured, required = json.RawMessage("{}"), `"content"`
	}
	var within map[string]json.RawMessage
	_ = json.Unmarshal(structured, &within) // a schema may be true
	definitions := ""
	for _, name := range []string{"$defs", "definitions"} {
		if within[name] != nil {
			definitions += fmt.Sprintf(`,%q:%s`, name, within[name])
		}
	}
	return fmt.Appendf(nil, `{"type":"object","properties":{"content":%s,"structuredContent":%s},"required":[%s]%s}`, blocks, structured, required, definitions)
}

// Definition returns the server's definition of the tool.
func (t *remoteTool) Definition() Definition { return t.said }

// SourcePrefix is the prefix of the recorded source of these tools, see [tool.Sourced]. The
// server's name of the tool follows.
const SourcePrefix = "mcp:"

// Source implements [tool.Sourced].
func (t *remoteTool) Source() string { return SourcePrefix + t.remote }

// answer is the record of an answered call.
type answer struct {
	// Result is the result of the protocol as the server wrote it, every byte of its JSON.
	Result string `cbor:"result,omitempty"`

	// Refused is the protocol's error instead, as JSON.
	Refused string `cbor:"refused,omitempty"`

	// Asked is a question of the server instead. The answer of its client is the next effect, and the
	// conversation goes on with another one of this name.
	Asked *asked `cbor:"asked,omitempty"`

	// Whole has the text of a failure contain all that the server said. It is not set in older runs.
	Whole bool `cbor:"whole,omitempty"`

	// The output, in older runs, instead of both.
	Output  canon.Raw `cbor:"output"`
	IsError bool      `cbor:"is_error,omitempty"`
}

// Recorded returns what the server answered in an effect of a call of its tool: a result, or an error of the
// protocol, as it was written. Both are nil for other effects.
func Recorded(tool string, e event.SideEffectRecorded) (result, refused json.RawMessage) {
	var a answer
	if e.Name != effectPrefix+tool || e.Error != nil || canon.Unmarshal(e.Value, &a) != nil || a.Asked != nil {
		return nil, nil
	}
	return json.RawMessage(a.Result), json.RawMessage(a.Refused)
}

// asked is a request of the server to its client.
type asked struct {
	Input  string `cbor:"input,omitempty"` // its name, if the answer asks for input
	Method string `cbor:"method"`
	Params string `cbor:"params,omitempty"` // as the server wrote them; empty for none
}

// Execute implements [tool.Tool] inside a wrapper.
func (t *remoteTool) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return step.ExecuteJSON(ctx, t, input)
}

// ExecuteParsed implements [step.ParsedTool]. The input is an object, or null for none.
func (t *remoteTool) ExecuteParsed(ctx context.Context, _ *step.Attempt, input *canon.Doc) (*canon.Doc, error) {
	if string(input.JSON) == "null" {
		input = &canon.Doc{JSON: []byte("{}"), CBOR: canon.Raw{0xa0}}
	}
	if bad := tool.CheckObject(input); bad != nil {
		bad.Was = fmt.Sprintf("mcptool: tool %q: the arguments are not a JSON object", t.name)
		return nil, bad
	}
	talk := t.converse(ctx, input)
	defer talk.close()
	got, err := step.SideEffect(ctx, effectPrefix+t.remote, func() (answer, error) { return talk.next(input) })
	for err == nil && got.Asked != nil {
		q := step.Effect{Name: effectPrefix + got.Asked.Method, Request: []byte(got.Asked.Params)}
		given, failed := step.Do(ctx, q, func(context.Context, string) (answer, error) { return talk.ask(got.Asked) })
		if _, recorded := errors.AsType[*step.EffectError](failed); failed != nil && !recorded {
			return nil, failed
		}
		switch {
		case got.Asked.Input == "":
		case failed != nil: // an answer that asks for input takes no error
			return nil, failed
		case given.Refused != "":
			return nil, &ToolError{Tool: t.name, Result: json.RawMessage(given.Refused)}
		}
		talk.reply(got.Asked, given, failed)
		got, err = step.SideEffect(ctx, effectPrefix+t.remote, func() (answer, error) { return talk.next(input) })
	}
	if err != nil {
		return nil, err
	}
	talk.answered(got)
	switch {
	case got.Refused != "":
		return nil, &ToolError{Tool: t.name, Result: json.RawMessage(got.Refused), whole: got.Whole}
	case got.Result != "":
		return t.read([]byte(got.Result), got.Whole)
	}
	output, err := canon.DocOf(got.Output)
	if err == nil && got.IsError {
		err = &ToolError{Tool: t.name, Result: output.JSON, before: true}
	}
	return output, err
}

// read returns the output of a result: all of it except the parts for the calling program.
func (t *remoteTool) read(result json.RawMessage, whole bool) (*canon.Doc, error) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(result, &members)
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	if methods[t.remote] == nil || members["contents"] == nil && members["messages"] == nil {
		members["content"] = withoutCopies(cmp.Or(string(members["content"]), "[]"), members["structuredContent"])
	}
	delete(members, "_meta")
	delete(members, "resultType")
	var output *canon.Doc
	if err == nil {
		output, err = canon.Parse(canon.Join(members))
	}
	if err != nil { // for instance a number beyond all floats: then the text is the JSON
		text, _ := json.Marshal(string(result)) // a string cannot fail
		members = map[string]json.RawMessage{}
		output, err = canon.Parse(fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, text))
	}
	if err != nil {
		return nil, err
	}
	_, structured := members["structuredContent"]
	for _, large := range []string{"content", "structuredContent"} {
		delete(members, large)
	}
	var said struct {
		content
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
	}
	_ = json.Unmarshal(canon.Join(members), &said) // passes on unknown content
	switch {
	case said.IsError:
		return nil, &ToolError{Tool: t.name, Result: output.JSON, whole: whole}
	case t.client.options.TextOnly:
		_ = json.Unmarshal(result, &said.content)
		return onlyText(said.content, structured || said.StructuredContent != nil)
	}
	return output, nil
}

// withoutCopies removes blocks of text that repeat the structured content, as the protocol
// asks of servers: a model would read it twice.
func withoutCopies(said string, structured json.RawMessage) json.RawMessage {
	content := json.RawMessage(said)
	var blocks []json.RawMessage
	if len(structured) == 0 || json.Unmarshal(content, &blocks) != nil || len(blocks) == 0 {
		return content
	}
	same, err := canon.JSON(structured)
	if err != nil {
		return content
	}
	kept := slices.DeleteFunc(blocks, func(block json.RawMessage) bool {
		var said map[string]string // a block with other members is not a copy
		if json.Unmarshal(block, &said) != nil || len(said) != 2 || said["type"] != "text" {
			return false
		}
		text, err := canon.JSON([]byte(said["text"]))
		return err == nil && bytes.Equal(text, same)
	})
	content, _ = json.Marshal(kept) // they were read as JSON
	return content
}

// onlyText refuses content that would be lost.
func onlyText(read content, alsoStructured bool) (*canon.Doc, error) {
	for _, block := range read.Content {
		if block.Type != "text" {
			return nil, fmt.Errorf("the result has content of type %q, and only text is wanted", block.Type)
		}
	}
	if alsoStructured && len(read.Content) == 0 {
		return nil, errors.New("the result has structured content and no text, and only text is wanted")
	}
	text, err := canon.Marshal(read.text())
	if err != nil {
		return nil, err
	}
	return canon.DocOf(text)
}

// ToolError is the failure of a tool reported by the server: a result marked as an error,
// or an error of the protocol.
type ToolError struct {
	Tool   string          // the agent's name for it
	Result json.RawMessage // {"content":[...],"isError":true} in canonical JSON, or {"code":...,"message":...}

	before bool // older records begin with the name
	whole  bool // the text has all of the result
}

// Error returns what a model reads: the texts of the result, and as JSON what is not text. A result
// without texts is JSON.
func (e *ToolError) Error() string {
	var result struct {
		content
		Message    string          `json:"message"`
		Structured json.RawMessage `json:"structuredContent"`
		Data       json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(e.Result, &result)
	said := cmp.Or(result.text(), result.Message, string(e.Result))
	if e.before {
		return fmt.Sprintf("mcptool: tool %q failed: %s", e.Tool, said)
	}
	if !e.whole || said == string(e.Result) {
		return said
	}
	for _, block := range result.Content {
		if block.Type != "text" {
			return string(e.Result)
		}
	}
	for _, more := range []json.RawMessage{result.Structured, result.Data} {
		if more != nil && string(more) != "null" {
			said += "\n" + string(more)
		}
	}
	return said
}

// content is what this package reads of the blocks of a result.
type content struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
}

// text joins the texts.
func (c content) text() string {
	var texts []string
	for _, block := range c.Content {
		if block.Type == "text" {
			texts = append(texts, block.Text)
		}
	}
	return strings.Join(texts, "\n")
}
