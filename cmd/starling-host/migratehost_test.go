package main

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSetsNameTheirTables: rights are granted on the tables that a set names, so
// each that a step creates has to be among them.
func TestSetsNameTheirTables(t *testing.T) {
	created := regexp.MustCompile(`(?i)\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?"?(\w+)`)
	for _, set := range hostTables() {
		var here []string
		for _, step := range set.Steps {
			for _, found := range created.FindAllStringSubmatch(step.Postgres, -1) {
				here = append(here, found[1])
			}
		}
		if diff := cmp.Diff(here, set.Tables); diff != "" {
			t.Errorf("%s creates other tables than it names (-created +named):\n%s", set.Name, diff)
		}
	}
}
