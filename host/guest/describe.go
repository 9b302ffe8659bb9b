package guest

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// Bounds on a description. Models and people read it, so it must be clean text.
const (
	maxTools            = 64
	maxDescriptionBytes = 4 << 10
	maxEffects          = 64
)

// recordedSchemas is what the schemas of a recorded module may cost, which includes all that earlier
// hosts accepted. Those of a new module may cost what the size of its description allows.
var recordedSchemas = work.Limits{Steps: 1 << 28, Bytes: 256 << 20}

var toolName = lazy.Regexp(`^[a-z][a-z0-9_-]{0,63}$`)

// parseDescription reads the document of starling_describe. Any error refuses the module. The budget
// pays for the schemas of all tools, which are kept as long as the module is loaded.
func parseDescription(b *work.Budget, doc []byte) ([]*Tool, error) {
	clean, err := canon.JSON(doc)
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	var d abi.Description
	if err := schema.Decode(clean, &d); err != nil {
		return nil, err
	}
	if len(d.Tools) == 0 || len(d.Tools) > maxTools {
		return nil, fmt.Errorf("lists %d tools, not 1 to %d", len(d.Tools), maxTools)
	}
	seen := map[string]bool{}
	tools := make([]*Tool, len(d.Tools))
	for i, t := range d.Tools {
		if seen[t.Name] {
			return nil, fmt.Errorf("lists tool %q twice", t.Name)
		}
		seen[t.Name] = true
		if tools[i], err = newTool(b, t); err != nil {
			return nil, fmt.Errorf("tool %d (%q): %w", i+1, t.Name, err)
		}
	}
	return tools, nil
}

func newTool(b *work.Budget, d abi.ToolDescription) (*Tool, error) {
	if !toolName().MatchString(d.Name) {
		return nil, fmt.Errorf("name must match %s", toolName())
	}
	if err := checkText(d.Description); err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	if err := checkEffects(d.Effects); err != nil {
		return nil, fmt.Errorf("effects: %w", err)
	}
	t := &Tool{desc: d}
	if !tool.IsObjectSchema(d.InputSchema) {
		return nil, fmt.Errorf(`input_schema: must be an object schema ("type": "object")`)
	}
	var err error
	if t.input, err = tool.CompileSchema(b, d.InputSchema); err != nil {
		return nil, fmt.Errorf("input_schema: %w", err)
	}
	if len(d.OutputSchema) == 0 {
		return t, nil
	}
	if t.output, err = tool.CompileSchema(b, d.OutputSchema); err != nil {
		return nil, fmt.Errorf("output_schema: %w", err)
	}
	return t, nil
}

// schemas returns the size of the tool's schemas, in bytes.
func (t *Tool) schemas() int { return t.input.Size() + t.output.Size() }

// checkText refuses texts that are too long or have characters that a model sees and a reader does
// not.
func checkText(s string) error {
	if len(s) > maxDescriptionBytes {
		return fmt.Errorf("is %d bytes, more than %d", len(s), maxDescriptionBytes)
	}
	for i, r := range s {
		if display.Invisible(r) {
			return fmt.Errorf("has the invisible character %U at byte %d", r, i)
		}
	}
	return nil
}

func checkEffects(hosts []string) error {
	if len(hosts) > maxEffects {
		return fmt.Errorf("%d hosts, more than %d", len(hosts), maxEffects)
	}
	for _, h := range hosts {
		if h == "" || len(h) > 260 || strings.ContainsFunc(h, notHostRune) {
			return fmt.Errorf("%q is not HOST or HOST:PORT", h)
		}
	}
	return nil
}

func notHostRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-:*[]", r))
}

// describeCommand returns a description for a WASI command, which has none: it is named
// after its file and takes any document.
func describeCommand(file string) *Tool {
	return &Tool{desc: abi.ToolDescription{
		Name:        commandName(file),
		Description: "A WASI command: the input document on its stdin, its stdout is the result.",
		InputSchema: abi.JSON(`true`),
	}}
}

// ToolDocument is what a tool says of itself, as JSON.
type ToolDocument struct {
	Name         string     `json:"name"`
	Description  string     `json:"description"`
	InputSchema  abi.JSON   `json:"input_schema"`
	OutputSchema abi.JSON   `json:"output_schema,omitempty"`
	Effects      []string   `json:"effects"`
	Idempotent   bool       `json:"idempotent"`
	Limits       abi.Limits `json:"limits,omitzero"`
}

// NewToolDocument returns the document of a tool.
func NewToolDocument(d abi.ToolDescription) ToolDocument {
	d.Effects = append([]string{}, d.Effects...)
	return ToolDocument(d)
}

// commandName makes a tool's name of a file's name.
func commandName(file string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return unicode.ToLower(r)
		}
		return '-'
	}, strings.TrimSuffix(file, ".wasm"))
	name = strings.TrimLeft(name, "0123456789-_")
	name = name[:min(len(name), 64)]
	if name == "" {
		return "command"
	}
	return name
}
