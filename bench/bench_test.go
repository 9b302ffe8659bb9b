package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"strings"
	"testing"
	"time"

	hostguest "github.com/starling-host/starling/host/guest"
)

func TestMain(m *testing.M) {
	hostguest.WorkerMain()
	os.Exit(m.Run())
}

// TestQuick measures one guest for a moment: every contender gives the right
// answer, and the report has every row. It looks at no figure.
func TestQuick(t *testing.T) {
	guests, err := loadGuests()
	if err != nil {
		t.Fatal(err)
	}
	var r report
	for _, g := range guests {
		if g.name != "cjson" && g.name != "gojson" {
			continue
		}
		results, err := compare(t.Context(), settings{rounds: 1, slice: time.Millisecond, goroutines: []int{1, 2}}, g)
		if err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		r.guests = append(r.guests, results)
	}
	text := r.text()
	for _, row := range []string{"| " + ours + " |", "| " + timeFuel + " |", "| time / " + rawReused + " | cjson |", "| " + oursWorker + " |", "| allocations a call | gojson |"} {
		if !strings.Contains(text, row) {
			t.Errorf("the report lacks %q:\n%s", row, text)
		}
	}
	plot := r.plot()
	if err := xml.Unmarshal(plot, new(struct{})); err != nil || bytes.Contains(plot, []byte("NaN")) {
		t.Errorf("the plot is no SVG: %v", err)
	}
}

// TestRuntime measures agents for a moment.
func TestRuntime(t *testing.T) {
	guests, err := loadGuests()
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureRuntime(t.Context(), settings{rounds: 1, slice: time.Millisecond}, guests[0])
	if err != nil || r.raw == 0 || r.memory < r.raw || r.sqlite < r.raw {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestProcessStarts runs the host as a process, twice.
func TestProcessStarts(t *testing.T) {
	s, err := processStarts(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if s.first == 0 || s.second == 0 || s.size < 1_000_000 {
		t.Errorf("got %+v", s)
	}
}
