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
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the input
}

// list asks the server for all pages of its list.
func (c *Client) list(ctx context.Context) ([]Definition, error) {
	var all []Definition
	params := &mcp.ListToolsParams{}
	for range maxPages {
		page, err := await(ctx, func() (*mcp.ListToolsResult, error) { return c.session.ListTools(ctx, params) })
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
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("schema of tool %q: %w", t.Name, err)
		}
		all = append(all, Definition{Name: t.Name, Description: t.Description, Schema: schema})
	}
	size := 0
	for _, d := range all {
		size += len(d.Name) + len(d.Description) + len(d.Schema)
	}
	if len(all) > maxTools || size > maxListBytes {
		return nil, fmt.Errorf("the server has more than %d tools or %d bytes of them", maxTools, maxListBytes)
	}
	return all, nil
}

// present makes tools of definitions.
func (c *Client) present(definitions []Definition) error {
	seen := make(map[string]bool, len(definitions))
	tools := []tool.Tool{}
	for _, d := range definitions {
		if seen[d.Name] {
			return fmt.Errorf("mcptool: the server lists the tool %q twice", d.Name)
		}
		seen[d.Name] = true
		if o := c.options; o.Include != nil && !slices.Contains(o.Include, d.Name) || slices.Contains(o.Exclude, d.Name) {
			continue
		}
		t, err := c.newTool(d)
		if err != nil {
			return fmt.Errorf("mcptool: the server's tool %q: %w", d.Name, err)
		}
		tools = append(tools, t)
	}
	for _, name := range c.options.Include {
		if !seen[name] {
			return fmt.Errorf("mcptool: the server has no tool %q, which was to be included", name)
		}
	}
	slices.SortFunc(tools, func(a, b tool.Tool) int { return cmp.Compare(a.Name(), b.Name()) })
	c.tools = tools
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
		client: c, remote: d.Name, name: c.options.Prefix + d.Name, description: d.Description, schema: schema,
	}, nil
}
