package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/lazy"
)

// Request is a prompt with everything that changes the answer. The zero value of
// a field other than Model and Messages leaves it to the provider. The names of
// its fields are part of [Request.Hash].
type Request struct {
	Model           string
	SystemPrompt    string
	Messages        []Message
	Tools           []ToolDefinition
	ToolChoice      string // "", "auto", "any", "none" or the name of a tool
	StopSequences   []string
	TopK            *int
	MaxOutputTokens int

	// Params is a CBOR map of options that one provider has, or empty. An
	// adapter refuses keys that it does not know.
	Params canon.Raw
}

// The roles of messages.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool" // a result, in ToolResult
)

// Message is one entry of the conversation.
type Message struct {
	Role        string
	Content     string
	ToolUses    []ToolUse         // the calls that an assistant asked for
	ToolResult  *ToolResult       // of RoleTool
	Annotations map[string]string // for adapters; not sent as text

	// Reasoning is the assistant's reasoning before Content, with the signatures
	// that some providers require back.
	Reasoning []Reasoning `cbor:"Reasoning,omitempty"`
}

// Reasoning is one block of reasoning.
type Reasoning struct {
	Content   string
	Signature []byte `cbor:"Signature,omitempty"`
	Redacted  bool   `cbor:"Redacted,omitempty"` // Content is opaque to everyone but the provider
}

// ToolUse is a call that an assistant asked for.
type ToolUse struct {
	CallID string
	Name   string
	Args   json.RawMessage // canonical JSON; a string if the model wrote none

	Malformed string `cbor:"-"` // why Args are not an object; no part of the request
}

// Object returns the arguments for a protocol that requires an object: any other
// value becomes the only member of one.
func (u ToolUse) Object() json.RawMessage {
	if len(u.Args) > 0 && u.Args[0] == '{' {
		return u.Args
	}
	if len(u.Args) == 0 {
		return json.RawMessage("{}")
	}
	return append(append([]byte(`{"arguments":`), u.Args...), '}')
}

// ToolResult is the answer of a tool.
type ToolResult struct {
	CallID  string
	Content string // JSON, or the text of an error
	IsError bool

	// Images belong to Content, which names them by their numbers, see [Request.ImagesApart].
	Images []Image `cbor:"Images,omitempty"`
}

// Image is a picture for a model that can see.
type Image struct {
	Type string // such as "image/png"
	Data []byte
}

// ImagesApart returns the request with the images of tool results separated from their text,
// and their number. It knows results of the form that servers of the Model Context Protocol
// give theirs.
func (r *Request) ImagesApart() (*Request, int) {
	apart, images := *r, 0
	for i, m := range r.Messages {
		if m.ToolResult == nil || m.ToolResult.IsError {
			continue
		}
		text, found := partImages(m.ToolResult.Content)
		if len(found) == 0 {
			continue
		}
		if images == 0 {
			apart.Messages = slices.Clone(r.Messages)
		}
		images += len(found)
		result := *m.ToolResult
		result.Content, result.Images = text, found
		apart.Messages[i].ToolResult = &result
	}
	return &apart, images
}

// imageTypes are the types that vendors accept. A replay depends on them.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func partImages(output string) (text string, images []Image) {
	var result map[string]json.RawMessage
	var blocks []json.RawMessage
	if !strings.Contains(output, `"image"`) || json.Unmarshal([]byte(output), &result) != nil || json.Unmarshal(result["content"], &blocks) != nil {
		return output, nil
	}
	for i, block := range blocks {
		var b struct {
			Type     string `json:"type"`
			Data     []byte `json:"data"`
			MimeType string `json:"mimeType"`
		}
		if json.Unmarshal(block, &b) != nil || b.Type != "image" || !slices.Contains(imageTypes, b.MimeType) || len(b.Data) == 0 {
			continue
		}
		images = append(images, Image{Type: b.MimeType, Data: b.Data})
		blocks[i] = fmt.Appendf(nil, `{"type":"image","mimeType":%q,"bytes":%d,"number":%d}`, b.MimeType, len(b.Data), len(images))
	}
	if images == nil {
		return output, nil
	}
	result["content"], _ = json.Marshal(blocks) // which are JSON, as the result is
	whole, _ := json.Marshal(result)
	return string(whole), images
}

// ToolDefinition describes a tool to a model.
type ToolDefinition struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the input
}

// ObjectSchema returns the schema of a tool's input for vendors that accept only
// objects, as models and MCP clients do: a tool that takes any document, whose schema is
// true, takes any object from them.
func ObjectSchema(schema json.RawMessage) json.RawMessage {
	if string(bytes.TrimSpace(schema)) == "true" {
		return json.RawMessage(`{"type":"object"}`)
	}
	return schema
}

// Hash is the BLAKE3-256 of the request in canonical CBOR, with the names of Go
// fields as keys and JSON as byte strings: the prompt_hash of TurnStarted.
func (r *Request) Hash() (canon.Hash, error) {
	b, err := canon.Marshal(r)
	if err != nil {
		return canon.Hash{}, err
	}
	return canon.Sum(b), nil
}

// plainName is a name of a tool that every vendor takes.
var plainName = lazy.Regexp(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)

// notPlain matches the characters that a plain name must not have.
var notPlain = lazy.Regexp(`[^a-zA-Z0-9_-]+`)

// PlainNames returns the request with tool names that every vendor accepts, and maps each
// changed name to the tool's own. The new name is a function of the old one, unless another
// tool of the request has it, and ends with a part of its hash.
func (r *Request) PlainNames() (plain *Request, own map[string]string) {
	own = map[string]string{}
	given, taken := map[string]string{}, map[string]bool{}
	for _, t := range r.Tools {
		taken[t.Name] = true
	}
	rename := func(name string) string {
		if plainName().MatchString(name) {
			return name
		}
		if _, ok := given[name]; !ok {
			hash := canon.Sum([]byte(name))
			begin := "_" + notPlain().ReplaceAllString(name, "_")
			if plainName().MatchString(begin[1:min(len(begin), 2)]) {
				begin = begin[1:]
			}
			begin = begin[:min(len(begin), 55)] + "_"
			for taken[begin+hash.String()[:8]] {
				hash = canon.Sum(hash[:])
			}
			made := begin + hash.String()[:8]
			given[name], own[made], taken[made] = made, name, true
		}
		return given[name]
	}
	renamed := *r
	renamed.Tools, renamed.Messages = slices.Clone(r.Tools), slices.Clone(r.Messages)
	for i := range renamed.Tools {
		renamed.Tools[i].Name = rename(renamed.Tools[i].Name)
	}
	renamed.ToolChoice = cmp.Or(given[r.ToolChoice], r.ToolChoice)
	for i := range renamed.Messages {
		uses := slices.Clone(renamed.Messages[i].ToolUses)
		for j := range uses {
			uses[j].Name = rename(uses[j].Name)
		}
		renamed.Messages[i].ToolUses = uses
	}
	return &renamed, own
}
