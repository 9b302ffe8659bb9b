package registry

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/spec"
)

// Sidecar names, describes and bounds the tools of a module. People write it as a file beside the
// module; from there on it is a section of the module, so the module's digest covers it, and a
// replay finds it in the log.
type Sidecar struct {
	Limits config.CallLimits      `yaml:"limits"`
	Tools  map[string]SidecarTool `yaml:"tools"` // by name
}

// SidecarTool is the description of one tool in a sidecar. Empty fields are not set.
type SidecarTool struct {
	Description  string          `yaml:"description"`
	InputSchema  json.RawMessage `yaml:"input_schema"`
	OutputSchema json.RawMessage `yaml:"output_schema"`
	Effects      []string        `yaml:"effects"`
	Idempotent   *bool           `yaml:"idempotent"`

	// How a WASI command is called. With an input schema, [Placeholder]s stand for its members.
	Args   [][]string `yaml:"args"` // words that belong together: if a member is missing, none is there
	Stdin  *string    `yaml:"stdin"`
	Output string     `yaml:"output"` // text, json or base64
}

// Placeholder is the part of a template that is replaced by a member of the input.
var Placeholder = lazy.Regexp(`\{[A-Za-z_][A-Za-z0-9_-]*\}`)

const (
	sidecarSection  = "starling.sidecar"
	sidecarSuffix   = ".tool.yaml"
	maxSidecarBytes = 256 << 10
)

var sidecarSchema = sync.OnceValue(func() *config.Schema {
	return config.MustSchema(spec.SidecarSchema(), config.Formats{"egress-host": config.Format(egress.ParseRule)})
})

// readSidecar reads a sidecar. The error is a [*config.Error].
func readSidecar(name string, data []byte) (*Sidecar, *config.Node, error) {
	s := &Sidecar{}
	root, err := sidecarSchema().Load(name, data, s)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range root.At("tools").Pairs() {
		if t.At("input_schema") == nil {
			continue // without a schema, braces are literal text
		}
		members := t.At("input_schema", "properties")
		templates := []*config.Node{t.At("stdin")}
		for _, words := range t.At("args").Items() {
			templates = append(append(templates, words), words.Items()...)
		}
		for _, template := range templates {
			if template == nil {
				continue
			}
			text, _ := template.Text()
			for _, p := range Placeholder().FindAllString(text, -1) {
				if name := strings.Trim(p, "{}"); members == nil || members.At(name) == nil {
					return nil, nil, template.Errorf("list it there under properties, or write { "+name+" } for the text itself", "input_schema has no property %q", name)
				}
			}
		}
	}
	return s, root, nil
}

// WithSidecar returns the module with a sidecar as its section, in place of one that it has. Name is
// that of the file, for errors, which are [*config.Error]s. An empty sidecar replaces none.
func (m Module) WithSidecar(name string, data []byte) (Module, error) {
	_, root, err := readSidecar(name, data)
	if err != nil {
		return m, err
	}
	_, doc, err := root.JSON()
	if err != nil {
		return m, err
	}
	module, err := wasm.Split(m.Wasm)
	if err != nil { // the gate has the words
		return m, nil
	}
	section := wasm.Section{ID: wasm.SectionCustom, Body: append(wasm.AppendName(nil, sidecarSection), doc...)}
	switch there := module.Custom(sidecarSection); {
	case there == nil:
		module.Sections = append(module.Sections, section)
	case string(doc) == "{}":
		return m, nil
	default:
		*there = section
	}
	m.Wasm = module.Encode()
	return m, nil
}

// besides returns the module with the sidecar that lies beside its file, if there is one.
func (m Module) besides() (Module, error) {
	path := filepath.Join(filepath.Dir(m.Source), m.Name+sidecarSuffix)
	data, err := config.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	} else if err != nil {
		return m, err
	}
	return m.WithSidecar(path, data)
}

// SidecarOf returns the sidecar in a module, or nil. The error is a [*config.Error].
func SidecarOf(module []byte) (*Sidecar, error) {
	m, err := wasm.Split(module)
	if err != nil {
		return nil, nil // the gate refuses it
	}
	section := m.Custom(sidecarSection)
	if section == nil {
		return nil, nil
	}
	doc := section.Content()
	if len(doc) > maxSidecarBytes {
		doc = nil // which is refused
	}
	s, _, err := readSidecar(sidecarSection, doc)
	return s, err
}
