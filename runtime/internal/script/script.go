package script

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/spec"
)

// Script is the answers of a model, turn by turn.
type Script []Turn

// Turn is one answer of the model. All fields are optional; an empty turn says
// nothing and ends.
type Turn struct {
	// When makes the turn an alternative to the next turn.
	When *Guard `yaml:"when" cbor:"when,omitempty"`

	Reasoning Blocks     `yaml:"reasoning" cbor:"reasoning,omitempty"`
	Text      string     `yaml:"text" cbor:"text,omitempty"`
	ToolCalls []ToolCall `yaml:"tool_calls" cbor:"tool_calls,omitempty"`

	// Usage are the counts of tokens. Without it they are guessed from lengths,
	// one token for every three characters.
	Usage *Usage `yaml:"usage" cbor:"usage,omitempty"`

	// StopReason is why the model stopped. The default is "tool_use" with tool
	// calls, else "end_turn".
	StopReason string `yaml:"stop_reason" cbor:"stop_reason,omitempty"`

	// Error ends the answer before it is complete.
	Error *Failure `yaml:"error" cbor:"error,omitempty"`

	// Chunk is the number of characters in a chunk. Zero means a word and the space
	// after it.
	Chunk int `yaml:"chunk" cbor:"chunk,omitempty"`

	// Delay passes between two chunks. The default is zero.
	Delay time.Duration `yaml:"delay" cbor:"delay,omitempty"`
}

// Guard decides when a turn is taken.
type Guard struct {
	// Contains is text that the last message must have: the user's, or the result
	// of a tool.
	Contains string `yaml:"contains" cbor:"contains"`
}

// Reasoning is one block of the model's thinking before it speaks. In a file it
// may be written as text.
type Reasoning struct {
	Text      string `yaml:"text" cbor:"text"`
	Signature string `yaml:"signature" cbor:"signature,omitempty"`
	Redacted  bool   `yaml:"redacted" cbor:"redacted,omitempty"` // Text is opaque; it has no signature
}

// Blocks is any number of blocks. In a file, one may stand without a list.
type Blocks []Reasoning

// ToolCall is a call that the model asks for.
type ToolCall struct {
	// ID is unique in its turn. Without one it is call_2_1 for the first call of
	// the second step, and so on.
	ID   string `yaml:"id" cbor:"id,omitempty"`
	Name string `yaml:"name" cbor:"name"`

	// Args are the arguments that the model writes: a JSON object, or anything
	// else to simulate a mistake. "" means {}. In a file it is the key args for
	// an object, and the key raw for text that is sent unchanged.
	Args string `yaml:"args,raw" cbor:"args,omitempty"`
}

// Usage counts the tokens of a turn.
type Usage struct {
	InputTokens       int64 `yaml:"input_tokens" cbor:"input_tokens,omitempty"`
	OutputTokens      int64 `yaml:"output_tokens" cbor:"output_tokens,omitempty"`
	CacheReadTokens   int64 `yaml:"cache_read_tokens" cbor:"cache_read_tokens,omitempty"`
	CacheCreateTokens int64 `yaml:"cache_create_tokens" cbor:"cache_create_tokens,omitempty"`
}

// Failure makes a turn fail.
type Failure struct {
	Class Class `yaml:"class" cbor:"class"`

	// Message is the text of the error. The default is its class.
	Message string `yaml:"message" cbor:"message,omitempty"`

	// AfterChunks is the number of chunks before it. With zero, the request itself
	// fails.
	AfterChunks int `yaml:"after_chunks" cbor:"after_chunks,omitempty"`
}

// Check returns the first error in the script, or nil. [New] calls it.
func (s Script) Check() error {
	if len(s) == 0 {
		return errors.New("script: there are no turns")
	}
	for i := range s {
		if err := s[i].check(); err != nil {
			return fmt.Errorf("script: turn %d: %w", i+1, err)
		}
	}
	return nil
}

func (t *Turn) check() error {
	u := t.Usage
	switch {
	case t.Chunk < 0 || t.Delay < 0:
		return fmt.Errorf("a chunk of %d characters and a delay of %v: both are zero or more", t.Chunk, t.Delay)
	case t.When != nil && t.When.Contains == "":
		return errors.New(`"contains" must have text`)
	case slices.ContainsFunc(t.Reasoning, func(r Reasoning) bool { return r.Text == "" || r.Redacted && r.Signature != "" }):
		return errors.New("a block of reasoning has text, and a signature only if it is not redacted")
	case slices.ContainsFunc(t.ToolCalls, func(c ToolCall) bool { return c.Name == "" }):
		return errors.New("a tool call needs a name")
	case u != nil && min(u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheCreateTokens) < 0:
		return errors.New("the counts of tokens are zero or more")
	}
	seen := map[string]bool{}
	for i, c := range t.ToolCalls {
		id := c.id(1, i)
		if seen[id] {
			return fmt.Errorf("two tool calls have the id %q", id)
		}
		seen[id] = true
	}
	if t.Error == nil {
		return nil
	}
	if err := t.Error.check(); err != nil {
		return err
	}
	if n := len(t.content(1)); t.Error.AfterChunks > n {
		return fmt.Errorf("after_chunks is %d, but the turn has %d chunks", t.Error.AfterChunks, n)
	}
	return nil
}

// id returns the call's own id, or one that is unique in the run.
func (c *ToolCall) id(step, index int) string {
	if c.ID != "" {
		return c.ID
	}
	return fmt.Sprintf("call_%d_%d", step, index+1)
}

// Load reads a script from a file. An error in its content is a
// [*config.Error].
func Load(path string) (Script, error) {
	data, err := config.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a script from the content of a file. The name appears in
// errors, which are of type [*config.Error].
func Parse(name string, data []byte) (Script, error) {
	var s Script
	root, err := schema().Load(name, data, &s)
	if err != nil {
		return nil, err
	}
	for i, at := range root.Items() {
		if err := s[i].check(); err != nil {
			return nil, at.Errorf("", "%v", err)
		}
	}
	return s, nil
}

var schema = sync.OnceValue(func() *config.Schema { return config.MustSchema(spec.ScriptSchema(), nil) })

// UnmarshalText implements [encoding.TextUnmarshaler]: a block may be written as text.
func (r *Reasoning) UnmarshalText(text []byte) error {
	r.Text = string(text)
	return nil
}
