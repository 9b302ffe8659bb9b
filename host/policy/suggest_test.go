package policy_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/host/policy"
)

// A suggestion is made of a log's names. Whatever is in them, it can be read back, or
// there is none.
func TestASuggestionCanBeReadBack(t *testing.T) {
	for name, ok := range map[string]bool{
		"plain": true, "null": true, "it's": false, "two\nlines: {}": false, "\x1b[2J\u202e\u2028\x00\U000e0041\x7f": false, "": false,
	} {
		c := logtest.Chain{RunID: "r"}
		args, err := canon.Marshal(map[string]int{})
		if err != nil {
			t.Fatal(err)
		}
		events := []event.Event{c.Start("g"), c.Next(event.ToolCallScheduled{CallID: "c", ToolName: name, Args: args, Attempt: 1})}
		text, err := policy.Suggest(events)
		if (err == nil) != ok {
			t.Errorf("%q: %q, %v", name, text, err)
		}
		if err != nil {
			continue
		}
		p, err := policy.Parse("suggested.yaml", text)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if _, ok := p.Tools[name]; !ok || len(p.Tools) != 1 {
			t.Errorf("%q is read back as %v", name, p.Tools)
		}
	}
}
