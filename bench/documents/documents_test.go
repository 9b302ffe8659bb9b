package main

import (
	"os"
	"strings"
	"testing"

	hostguest "github.com/starling-host/starling/host/guest"
)

func TestMain(m *testing.M) {
	hostguest.WorkerMain()
	os.Exit(m.Run())
}

// TestQuick goes all ways once, and wants a figure of each. It holds none against its goal.
func TestQuick(t *testing.T) {
	ways, end, err := open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	text, err := measure(t.Context(), ways, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run", "replay", "API call", "gateway call"} {
		if !strings.Contains(text, "| "+name+" |") {
			t.Errorf("there is no row %q", name)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error(text)
	}
}
