package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/tool"
)

// What a list may have. A server has tens of tools, and a model can read no more.
const (
	maxPages     = 100
	maxTools     = 1000
	maxListBytes = 4 << 20
	maxNameBytes = 1 << 10
)

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

// Hash returns the BLAKE3 hash of all that the server says of the tool, in canonical JSON:
// it is the same exactly if a model is told the same.
func (d Definition) Hash() canon.Hash {
	doc, err := json.Marshal(d)
	if err == nil {
		doc, err = canon.JSON(doc)
	}
	if err != nil { // the server's schema is none, and no two of those are the same
		doc = fmt.Appendf(nil, "%q %q %q %q", d.Name, d.Description, d.Schema, d.Output)
	}
	return canon.Sum(doc)
}

// list asks the server for all pages of its list.
func list(ctx context.Context, session *mcp.ClientSession) ([]Definition, error) {
	var all []Definition
	params := &mcp.ListToolsParams{}
	for range maxPages {
		page, err := await(ctx, func() (*mcp.ListToolsResult, error) { return session.ListTools(ctx, params) })
		if err != nil {
			return nil, err
		}
		if all, err = appendPage(all, page.Tools); err != nil {
			return nil, err
		}
		if page.NextCursor == "" {
			return all, nil
		}
		if page.NextCursor == params.Cursor {
			return nil, errors.New("the server says that the next page is the one that it has just sent")
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, fmt.Errorf("the server has more than %d pages of them", maxPages)
}

func appendPage(all []Definition, page []*mcp.Tool) ([]Definition, error) {
	for _, t := range page {
		d := Definition{Name: t.Name, Title: t.Title, Description: t.Description}
		for part, value := range map[*json.RawMessage]any{&d.Schema: t.InputSchema, &d.Output: t.OutputSchema, &d.Hints: t.Annotations} {
			doc, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("tool %q: %w", t.Name, err)
			}
			if *part = doc; string(doc) == "null" && part != &d.Schema {
				*part = nil
			}
		}
		all = append(all, d)
	}
	size := 0
	for _, d := range all {
		size += len(d.Name) + len(d.Title) + len(d.Description) + len(d.Schema) + len(d.Output) + len(d.Hints)
	}
	if len(all) > maxTools || size > maxListBytes {
		return nil, fmt.Errorf("the server has more than %d tools or %d bytes of them", maxTools, maxListBytes)
	}
	return all, nil
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
