package starling_test

import (
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
)

// TestEveryDifferenceIsAChange changes one fact of a module after another. Each is one change, from the old to the
// new and back; another spelling of a schema is not a change.
func TestEveryDifferenceIsAChange(t *testing.T) {
	document := func(edit func(*starling.ModuleDocument, *guest.ToolDocument)) starling.ModuleDocument {
		tool := guest.NewToolDocument(abi.ToolDescription{Name: "dice", Description: "rolls", InputSchema: abi.JSON(`{"type":"object","title":"x"}`)})
		doc := starling.ModuleDocument{ModuleBytes: starling.ModuleBytes{Digest: "0"}, ABI: "a", Imports: []string{"clock"}}
		edit(&doc, &tool)
		if tool.Name != "" {
			doc.Tools = []guest.ToolDocument{tool}
		}
		return doc
	}
	same := document(func(*starling.ModuleDocument, *guest.ToolDocument) {})
	for what, edit := range map[string]func(*starling.ModuleDocument, *guest.ToolDocument){
		"abi":         func(d *starling.ModuleDocument, _ *guest.ToolDocument) { d.ABI = "b" },
		"imports":     func(d *starling.ModuleDocument, _ *guest.ToolDocument) { d.Imports = append(d.Imports, "http") },
		"removed":     func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.Name = "" },
		"description": func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.Description += "." },
		"input":       func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.InputSchema = abi.JSON(`true`) },
		"output":      func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.OutputSchema = abi.JSON(`true`) },
		"hosts":       func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.Effects = []string{"a.test"} },
		"repeat":      func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.Idempotent = true },
		"limits":      func(_ *starling.ModuleDocument, t *guest.ToolDocument) { t.Limits.TimeoutMs = 1 },
		"": func(d *starling.ModuleDocument, t *guest.ToolDocument) {
			d.Digest, t.InputSchema = "1", abi.JSON(`{"title": "x", "type": "object"}`)
		},
	} {
		other := document(edit)
		there, back := same.Changes(other), other.Changes(same)
		if what == "" {
			if len(there)+len(back) > 0 {
				t.Errorf("the same module in another spelling: %v, %v", there, back)
			}
			continue
		}
		mirror := what
		if what == "removed" {
			mirror = "added"
		}
		if len(there) != 1 || len(back) != 1 || there[0].What != what || back[0].What != mirror || there[0].Old != back[0].New || there[0].New != back[0].Old {
			t.Errorf("%s: %+v there, %+v back", what, there, back)
		}
	}
}
