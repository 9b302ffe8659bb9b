package script

import (
	"fmt"
	"io"
	"os"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/yaml"
)

// Load reads a script from a file. What is wrong with its content is a
// [*yaml.Error].
func Load(path string) (Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, yaml.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a script from the content of a file. The name stands in errors,
// which are of type [*yaml.Error].
func Parse(name string, data []byte) (Script, error) {
	root, err := yaml.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if root.Kind() == yaml.Map {
		return nil, root.Errorf("begin each turn with a dash, as in: - text: Hello.", "a script is a list of turns, not a map")
	}
	var s Script
	if err := root.Decode(&s); err != nil {
		return nil, err
	}
	if len(s) == 0 {
		return nil, root.Errorf("", "a script has at least one turn")
	}
	return s, nil
}

// CheckYAML implements [yaml.Checker].
func (t *Turn) CheckYAML(n *yaml.Node) error { return wrong(n, t.check()) }

// CheckYAML implements [yaml.Checker].
func (g *Guard) CheckYAML(n *yaml.Node) error {
	if g.Contains == "" {
		return wrong(n.Get("contains"), errNoGuard)
	}
	return nil
}

// CheckYAML implements [yaml.Checker].
func (f *Failure) CheckYAML(n *yaml.Node) error { return wrong(n.Get("class"), f.check()) }

// wrong puts an error at a place in a file.
func wrong(n *yaml.Node, err error) error {
	if err == nil {
		return nil
	}
	return n.Errorf("", "%v", err)
}

// DecodeYAML implements [yaml.Decoder].
func (b *Blocks) DecodeYAML(n *yaml.Node) error {
	if n.Kind() == yaml.List {
		return n.Decode((*[]Reasoning)(b))
	}
	*b = make(Blocks, 1)
	return n.Decode(&(*b)[0])
}

// DecodeYAML implements [yaml.Decoder].
func (r *Reasoning) DecodeYAML(n *yaml.Node) error {
	type fields Reasoning
	decode := n.Decode((*fields)(r))
	if text, ok := n.Text(); ok {
		r.Text, decode = text, nil
	}
	if decode != nil {
		return decode
	}
	return wrong(n, r.check())
}

// DecodeYAML implements [yaml.Decoder].
func (c *ToolCall) DecodeYAML(n *yaml.Node) error {
	var file struct {
		ID   string  `yaml:"id"`
		Name string  `yaml:"name,required"`
		Args object  `yaml:"args"`
		Raw  *string `yaml:"raw"`
	}
	if err := n.Decode(&file); err != nil {
		return err
	}
	*c = ToolCall{ID: file.ID, Name: file.Name, Args: string(file.Args)}
	if file.Raw == nil {
		return nil
	}
	if n.Get("args") != nil {
		return n.Get("raw").Errorf("", `a tool call has "args" or "raw", not both`)
	}
	c.Args = *file.Raw
	return nil
}

// object is a map of a file as canonical JSON.
type object string

// DecodeYAML implements [yaml.Decoder].
func (o *object) DecodeYAML(n *yaml.Node) error {
	if n.Kind() != yaml.Map {
		return n.Errorf(`for arguments that are none, write them as text under "raw"`, "arguments must be a map, not %v", n.Kind())
	}
	encoded, err := canon.Marshal(n.Value())
	if err != nil {
		return wrong(n, err)
	}
	text, err := canon.ToJSON(encoded)
	*o = object(text)
	return wrong(n, err)
}
