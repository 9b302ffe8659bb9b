package agenttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
)

// mostLine bounds a line of a fixture: an event in hexadecimal and as JSON.
const mostLine = 64 << 20

// Fixture reads a recorded run from a file and returns a log that holds it. The file
// is what "starling-host export DB RUN" prints, or what [SaveFixture] wrote: one
// event in each line, of which the envelope counts.
func Fixture(t testing.TB, path string) (log eventlog.EventLog, runID string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	log = store.Memory()
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, mostLine)
	for n := 1; lines.Scan(); n++ {
		var line struct{ Envelope string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		envelope, err := hex.DecodeString(line.Envelope)
		if err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		ev, err := event.Unmarshal(envelope)
		if err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		if err := log.Append(context.Background(), ev.RunID, ev); err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
		runID = ev.RunID
	}
	if err := lines.Err(); err != nil || runID == "" {
		t.Fatalf("%s: no events: %v", path, err)
	}
	return log, runID
}

// SaveFixture writes a run to a file, for [Fixture]. A test does it once, when it
// is told to, and the file is committed.
func SaveFixture(t testing.TB, path string, log eventlog.EventLog, runID string) {
	t.Helper()
	events, err := log.Read(context.Background(), runID)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, ev := range events {
		line, err := event.ToJSON(ev)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
