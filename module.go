package starling

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
)

// ModuleDocument is a module with what it says of itself, as JSON.
type ModuleDocument struct {
	ModuleBytes
	ABI     string               `json:"abi"`
	Imports []string             `json:"imports"`
	Tools   []guest.ToolDocument `json:"tools"`

	Component   *guest.Provenance  `json:"component,omitempty"`
	Interpreter *guest.Interpreter `json:"interpreter,omitempty"`
}

// ModuleBytes identifies a module.
type ModuleBytes struct {
	Source string `json:"source"`
	Digest string `json:"digest"`
	Size   int    `json:"size"`
}

// Document describes the module.
func (m *Module) Document() ModuleDocument {
	return ModuleDocument{
		ModuleBytes: ModuleBytes{m.Source.Source, m.Digest().String(), len(m.Source.Wasm)},
		ABI:         m.ABI(), Imports: append([]string{}, m.Imports()...),
		Component: guest.ComponentOf(m.Source.Wasm), Interpreter: guest.InterpreterOf(m.Source.Wasm),
		Tools: lists.Map(m.Tools(), func(t *guest.Tool) guest.ToolDocument { return guest.NewToolDocument(t.Describe()) }),
	}
}

// Annotations describes a module in the annotations of its artefact. They are information: what
// a host enforces is in the module.
func (d ModuleDocument) Annotations(name string) (map[string]string, error) {
	const own = "com.github.starling-host."
	var about []string
	tools, hosts, limits := []string{}, []string{}, map[string]any{}
	for _, t := range d.Tools {
		tools, hosts = append(tools, t.Name), append(hosts, t.Effects...)
		about = append(about, t.Description)
		if t.Limits.Fuel > 0 || t.Limits.MemoryBytes > 0 || t.Limits.TimeoutMs > 0 {
			limits[t.Name] = t.Limits
		}
	}
	slices.Sort(hosts)
	all := map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.description": display.Clip(strings.Join(about, " "), 1000),
		own + "module": "blake3:" + d.Digest, own + "abi": d.ABI,
	}
	for key, value := range map[string]any{"tools": tools, "hosts": slices.Compact(hosts), "limits": limits} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		all[own+key] = string(text)
	}
	return all, nil
}

// Change is something that one of two modules lacks, or has otherwise.
type Change struct {
	What string `json:"what"`
	Tool string `json:"tool,omitempty"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Changes compares what two modules say of themselves. Digest and size are no change.
func (d ModuleDocument) Changes(to ModuleDocument) []Change {
	all := []Change{}
	compare := func(tool, what, old, new string) {
		if old != new {
			all = append(all, Change{what, tool, old, new})
		}
	}
	missing := func(in, of []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(in), func(name string) bool { return slices.Contains(of, name) }), ", ")
	}
	compare("", "abi", d.ABI, to.ABI)
	compare("", "imports", missing(d.Imports, to.Imports), missing(to.Imports, d.Imports))
	limits := func(l abi.Limits) string {
		return fmt.Sprintf("fuel %d, memory %d, timeout %dms", l.Fuel, l.MemoryBytes, l.TimeoutMs)
	}
	byName := func(tools []guest.ToolDocument, name string) int {
		return slices.IndexFunc(tools, func(t guest.ToolDocument) bool { return t.Name == name })
	}
	for _, t := range d.Tools {
		i := byName(to.Tools, t.Name)
		if i < 0 {
			all = append(all, Change{What: "removed", Tool: t.Name, Old: t.Description})
			continue
		}
		u := to.Tools[i]
		compare(t.Name, "description", t.Description, u.Description)
		compare(t.Name, "input", canonical(t.InputSchema), canonical(u.InputSchema))
		compare(t.Name, "output", canonical(t.OutputSchema), canonical(u.OutputSchema))
		compare(t.Name, "hosts", missing(t.Effects, u.Effects), missing(u.Effects, t.Effects))
		compare(t.Name, "repeat", fmt.Sprint(t.Idempotent), fmt.Sprint(u.Idempotent))
		compare(t.Name, "limits", limits(t.Limits), limits(u.Limits))
	}
	for _, u := range to.Tools {
		if byName(d.Tools, u.Name) < 0 {
			all = append(all, Change{What: "added", Tool: u.Name, New: u.Description})
		}
	}
	return all
}

// canonical is a schema without differences in spelling.
func canonical(schema []byte) string {
	if doc, err := canon.JSON(schema); err == nil {
		return string(doc)
	}
	return string(schema)
}

// RunDifference is how runs of a module execute with another one.
type RunDifference struct {
	Same    int                    `json:"same"`
	Skipped int                    `json:"skipped"` // they use other modules, too
	Differ  []agent.ReplayDocument `json:"differ"`

	Verdicts []Verdict `json:"-"` // of those that differ
}

// DiffRuns executes the runs that use only the module with a digest again with the module of o, and compares them.
func (db *DB) DiffRuns(ctx context.Context, digest string, o ReplayOptions) (*RunDifference, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := db.RunIDs(ctx)
	if err != nil {
		return nil, err
	}
	made := &RunDifference{Differ: []agent.ReplayDocument{}}
	var of []string
	for _, id := range ids {
		for first, err := range log.Events(ctx, id, 0) {
			if err != nil {
				return nil, err
			}
			used, err := first.Modules()
			switch others := slices.DeleteFunc(slices.Clone(used), func(d canon.Hash) bool { return d.String() == digest }); {
			case err != nil || len(others) == len(used): // of other tools
			case len(others) > 0:
				made.Skipped++
			default:
				of = append(of, id)
			}
			break
		}
	}
	r, err := db.Replayer(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return made, r.ReplayAll(ctx, of, func(v Verdict) error {
		if v.Identical() {
			made.Same++
		} else {
			made.Verdicts, made.Differ = append(made.Verdicts, v), append(made.Differ, v.Document())
		}
		return nil
	})
}
