package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/incidenttest"
	"github.com/starling-host/starling/internal/search"
)

// TestIncidentInTheTerminal looks at an incident as somebody does who was just woken: the last
// screen of "runs" names the three reasons, and each of their queries finds its runs.
func TestIncidentInTheTerminal(t *testing.T) {
	skipShort(t)
	path := filepath.Join(t.TempDir(), "incident.db")
	if keep := os.Getenv("STARLING_INCIDENT"); keep != "" { // to look at it
		path = keep
	}
	incidenttest.Record(t, path)
	plain := func(s string) string { return regexp.MustCompile(`\x1b\[[0-9]+m`).ReplaceAllString(s, "") }
	for _, query := range []string{"", "state:failed"} {
		stdout, stderr := onTerminals(t, []string{"runs", path, query}, false, 80, 24)
		lines := strings.Split(strings.TrimRight(plain(stdout), "\n"), "\n")
		screen := strings.Join(lines[max(len(lines)-23, 0):], "\n") + stderr
		for _, want := range []string{
			fmt.Sprintf("^%d( of %d runs)? failed:$", incidenttest.Failed, incidenttest.Runs),
			fmt.Sprintf("^ +%d  customers: status 503   [0-9: -]+( to [0-9: -]+)?$", incidenttest.Broken),
			fmt.Sprintf("^ +%d  get: timeout: ", incidenttest.Silent),
			fmt.Sprintf("^ +%d  spin: out of fuel: ", incidenttest.Spinning),
		} {
			if !regexp.MustCompile("(?m)" + want).MatchString(screen) {
				t.Errorf("%s: the last screen has no %q:\n%s", query, want, screen)
			}
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > 80 {
				t.Errorf("a line has %d characters: %s", n, line)
			}
		}
	}
	var doc struct {
		Total   int
		Reasons []search.Reason
	}
	ask := func(query string) {
		var out, log strings.Builder
		if code := Main([]string{"runs", path, query, "-o", "json"}, nil, &out, &log); code != exitOK {
			t.Fatal(log.String())
		}
		doc.Reasons = nil
		if err := json.Unmarshal([]byte(out.String()), &doc); err != nil {
			t.Fatal(err)
		}
	}
	ask("")
	if doc.Total != incidenttest.Runs || len(doc.Reasons) != 3 {
		t.Fatalf("there are %d runs and the reasons %+v", doc.Total, doc.Reasons)
	}
	for _, r := range doc.Reasons {
		if ask(r.Query); doc.Total != r.Runs {
			t.Errorf("%s finds %d of %d", r.Query, doc.Total, r.Runs)
		}
	}
	for query, want := range map[string]int{"status:5xx": incidenttest.Broken, "status:404": 66, "tool:spin fuel:>1M": incidenttest.Spinning, "host:127.0.0.1:* state:failed": 30, "text:\"second attempt\"": 66} {
		if ask(query); doc.Total != want {
			t.Errorf("%s finds %d, want %d", query, doc.Total, want)
		}
	}
}
