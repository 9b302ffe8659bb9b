package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestQuick measures once what needs no Node. It holds no figure against its goal.
func TestQuick(t *testing.T) {
	t.Chdir("..")
	report, err := run(t.Context(), 1, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| C, eight functions | ", "| plug-in for Extism: copy | "} {
		if !strings.Contains(report, row) {
			t.Errorf("there is no row %q in\n%s", row, report)
		}
	}
	if _, err := os.Stat(folder + "/node_modules"); err == nil && !strings.Contains(report, "| call / Node | "+spiderName) {
		t.Error("there is no row of Node")
	}
}
