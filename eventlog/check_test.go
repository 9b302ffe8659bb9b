package eventlog_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/memlog"
	"github.com/starling-host/starling/eventlog/logtest"
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
		if _, err := eventlog.Check(run, eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
		end, err := run[len(run)-1].AsRunCompleted()
		if err != nil {
			continue // it did not complete, so it carries no totals
		}
		turns, tools, in, out, cost, _ := eventlog.AggregateRun(run)
		if turns != int(end.TurnCount) || tools != int(end.ToolCallCount) || in != end.TotalInputTokens ||
			out != end.TotalOutputTokens || cost != end.TotalCostUSD {
			t.Errorf("run %s: %d turns, %d tools, %d and %d tokens, cost %v; recorded %+v", run[0].RunID, turns, tools, in, out, cost, end)
		}
	}
}

func TestAggregateRun(t *testing.T) {
	c := logtest.Chain{RunID: "r"}
	evs := []event.Event{
		c.Start("g"),
		c.Next(event.TurnStarted{TurnID: "t"}),
		c.Next(event.AssistantMessageCompleted{TurnID: "t", InputTokens: 10, OutputTokens: 3, CostUSD: 0.5}),
		c.Next(payload{event.KindAssistantMessageCompleted, canon.Raw{0x01}}), // does not decode: skipped
		c.Next(event.AssistantMessageCompleted{InputTokens: 1, CostUSD: math.NaN()}),
		c.Next(call("a", 1)),
		c.Next(call("a", 2)), // another attempt of the same call
	}
	turns, tools, in, out, cost, dur := eventlog.AggregateRun(evs)
	if turns != 1 || tools != 1 || in != 11 || out != 3 || cost != 0.5 || dur != 6e6 {
		t.Error(turns, tools, in, out, cost, dur)
	}
	if _, _, _, _, _, dur := eventlog.AggregateRun(nil); dur != 0 {
		t.Error("no events take time")
	}
}

// plain hides everything but the interface.
type plain struct{ eventlog.EventLog }

func TestLogsWithoutALayout(t *testing.T) {
	mem := memlog.New()
	log := plain{mem}
	if err := eventlog.Preflight(t.Context(), log); err != nil {
		t.Errorf("Preflight: %v", err)
	}
}

func TestCheckSchema(t *testing.T) {
	for _, tc := range []struct {
		have, want int
		err        error
	}{{1, 1, nil}, {0, 1, eventlog.ErrSchemaOutdated}, {2, 1, eventlog.ErrSchemaTooNew}} {
		if err := eventlog.CheckSchema(tc.have, tc.want); !errors.Is(err, tc.err) {
			t.Errorf("%d, %d: %v", tc.have, tc.want, err)
		}
	}
}

// FuzzCheck hands arbitrary payloads to every rule. Nothing may panic, and
// what passes strictly passes without.
func FuzzCheck(f *testing.F) {
	for _, run := range starlingRuns(f) {
		for _, e := range run {
			f.Add(uint8(e.Kind), []byte(e.Payload))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		first := event.Event{RunID: "r", Seq: 1, Kind: event.Kind(kind), Payload: raw}
		head := first.Hash()
		run := []event.Event{first, {RunID: "r", Seq: 2, PrevHash: head[:], Kind: event.Kind(kind), Payload: raw}}
		for n := range 3 {
			_, strict := eventlog.Check(run[:n], eventlog.CheckOptions{Strict: true, AllowOpen: true})
			_, loose := eventlog.Check(run[:n], eventlog.CheckOptions{AllowOpen: true})
			if strict == nil && loose != nil {
				t.Error(loose)
			}
		}
		eventlog.AggregateRun(run)
	})
}

// BenchmarkCheck reports the rate of a check in memory as a share of the rate
// of encoding and hashing the same events, which is the least that it can do.
func BenchmarkCheck(b *testing.B) {
	run := logtest.Finished("01JABCDEFGHJKMNPQRSTV00001", 5000)
	for _, o := range []eventlog.CheckOptions{{}, {Strict: true}} {
		b.Run(fmt.Sprintf("strict=%v", o.Strict), func(b *testing.B) {
			var buf []byte
			began := time.Now()
			for range b.N {
				for _, e := range run {
					buf = event.AppendEnvelope(buf[:0], e)
					event.Hash(buf)
				}
			}
			hashing := time.Since(began)
			b.ResetTimer()
			for range b.N {
				if _, err := eventlog.Check(run, o); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(run)*b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(hashing.Seconds()/b.Elapsed().Seconds(), "ratio-to-hashing")
		})
	}
}
