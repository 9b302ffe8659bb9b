package mcptool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/tool"
)

// maxNameBytes bounds the name of a tool.
const maxNameBytes = 1 << 10

// Definition is what a server says about one of its tools. It is plain data and
// survives a way through JSON.
type Definition struct {
	Name        string          `json:"name"` // the server's
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`                  // JSON Schema of the input
	Output      json.RawMessage `json:"output_schema,omitempty"` // JSON Schema of structured content; nil if the server has none
	Hints       json.RawMessage `json:"annotations,omitempty"`   // the annotations, as the protocol writes them; nil for none
}

// Canonical returns all that the server says of the tool as canonical JSON. It is an error if
// there is none, for a schema that is nested too deep.
func (d Definition) Canonical() ([]byte, error) {
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return canon.JSON(doc)
}

// Hash returns the BLAKE3 hash of all that the server says of the tool, in canonical JSON:
// it is the same exactly if a model is told the same. Without a canonical form, the order of
// members counts as well.
func (d Definition) Hash() canon.Hash {
	doc, err := d.Canonical()
	if err != nil {
		doc = fmt.Appendf(nil, "%q %q %q %q %q %q", d.Name, d.Title, d.Description, d.Schema, d.Output, d.Hints)
	}
	return canon.Sum(doc)
}

// Options say how a [Client] presents its server. Names of tools are the server's.
type Options struct {
	Prefix  string   // before the names of all tools, so that an agent can have several servers
	Include []string // the only tools that are presented; nil presents all
	Exclude []string // tools that are left out

	// Timeout bounds how long one call may take. Zero leaves that to its context.
	Timeout time.Duration

	// TextOnly makes every result a JSON string, the texts joined by newlines. A result
	// with anything other than text in it is an error.
	TextOnly bool

	// MaxOutputBytes bounds the result of a call, encoded as JSON. What is larger is an
	// error and never shortened. Zero means 1 MiB.
	MaxOutputBytes int

	// Accept decides about each tool that Include and Exclude leave. A tool for which it
	// returns an error is left out, and so is one that cannot be presented: then Accept is
	// not asked, and Refused is told in both cases. With Accept nil all are accepted, and one
	// that cannot be presented is an error.
	Accept  func(Definition) error
	Refused func(tool string, why error)
}

// Offline presents tools that were listed before, with the same options, where
// their server does not exist. They are for replaying a run; executed in a live
// run, each of them fails. It is an error if the definitions cannot be presented.
func Offline(definitions []Definition, o Options) ([]tool.Tool, error) {
	c := newClient(o)
	err := c.present(definitions)
	return c.tools, err
}

// present makes tools of definitions.
func (c *Client) present(definitions []Definition) error {
	seen := make(map[string]bool, len(definitions))
	c.tools, c.definitions = []tool.Tool{}, nil
	definitions = slices.SortedFunc(slices.Values(definitions), func(a, b Definition) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range definitions {
		if seen[d.Name] {
			return fmt.Errorf("mcptool: the server lists the tool %q twice", d.Name)
		}
		seen[d.Name] = true
		if o := c.options; o.Include != nil && !slices.Contains(o.Include, d.Name) || slices.Contains(o.Exclude, d.Name) {
			continue
		}
		t, err := c.newTool(d)
		if err == nil && c.options.Accept != nil {
			err = c.options.Accept(d)
		}
		switch {
		case err != nil && c.options.Accept == nil:
			return fmt.Errorf("mcptool: the server's tool %q: %w", d.Name, err)
		case err != nil:
			c.options.Refused(d.Name, err)
			continue
		}
		c.tools, c.definitions = append(c.tools, t), append(c.definitions, d)
	}
	for _, name := range c.options.Include {
		if !seen[name] {
			return fmt.Errorf("mcptool: the server has no tool %q, which was to be included", name)
		}
	}
	return nil
}

// newTool checks a definition. The schema becomes canonical, so that its hash in
// the log does not depend on how a server orders its members today.
func (c *Client) newTool(d Definition) (*remoteTool, error) {
	switch {
	case d.Name == "":
		return nil, errors.New("its name is empty")
	case len(d.Name) > maxNameBytes || !utf8.ValidString(d.Name):
		return nil, fmt.Errorf("its name is not UTF-8 of at most %d bytes", maxNameBytes)
	}
	schema, err := canon.JSON(d.Schema)
	if err != nil {
		return nil, fmt.Errorf("its schema is not JSON: %w", err)
	}
	var object struct{ Type any }
	if err := json.Unmarshal(schema, &object); err != nil || object.Type != "object" {
		return nil, fmt.Errorf(`its schema is not one of type "object": %.100s`, schema)
	}
	return &remoteTool{
		client: c, remote: d.Name, name: c.options.Prefix + d.Name, description: d.Description, schema: schema, output: d.Output,
	}, nil
}
