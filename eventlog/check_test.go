package eventlog_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// starlingRuns returns the runs that the Starling runtime recorded, in the
// order of the file.
func starlingRuns(t testing.TB) [][]event.Event {
	t.Helper()
	f, err := os.Open("../../shared/vectors/starling/ref.ndjson")
	if err != nil {
		t.Skipf("SKIPPED: the logs of the Starling runtime are not here: %v", err)
	}
	defer f.Close()
	var runs [][]event.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct{ Envelope string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		envelope, err := hex.DecodeString(line.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		e, err := event.Unmarshal(envelope)
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 1 {
			runs = append(runs, nil)
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], e)
	}
	return runs
}

func TestRunsOfTheSeedRuntime(t *testing.T) {
	for _, run := range starlingRuns(t) {
		if err := eventlog.Validate(run); err != nil {
			t.Error(err)
		}
		_, err := eventlog.Check(run, eventlog.CheckOptions{Strict: true})
		t.Log(run[0].RunID, err)
		turns, tools, in, out, cost, dur := eventlog.AggregateRun(run)
		if c, err := run[len(run)-1].AsRunCompleted(); err == nil {
			t.Logf("%+v / %d %d %d %d %f %d", c, turns, tools, in, out, cost, dur)
		}
	}
}
