package main

import (
	"strings"
	"testing"
)

// TestQuick measures everything for a moment, and wants each part to have figures. It
// holds none of them against its goal, which some do not have.
func TestQuick(t *testing.T) {
	b, release, err := prepare(quick)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if b.server == nil {
		t.Skip("SKIPPED: there is no PostgreSQL to start: install the package postgresql")
	}
	for _, p := range allParts {
		before := len(b.report.goals)
		if err := p.measure(b, t.Context()); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if len(b.report.goals) == before {
			t.Errorf("%s has no goal", p.name)
		}
	}
	for _, g := range b.report.goals {
		if g.measured <= 0 {
			t.Errorf("%s: %s: %v", g.load, g.what, g.measured)
		}
	}
	if text := b.report.text(); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error(text)
	}
}
