package main

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
)

func TestReplayDivergenceText(t *testing.T) {
	for _, c := range []struct {
		name string
		d    agent.Divergence
		want string
	}{
		{"a field that differs", agent.Divergence{
			RunID: "01R", MismatchError: step.MismatchError{Seq: 4, Kind: event.KindSideEffectRecorded, ExpectedKind: event.KindSideEffectRecorded, Class: "payload",
				Field: "request", Expected: "GET http://h/customers/41", Got: "GET http://h/customers/42", Reason: "the request differs",
			}}, `diverged at event 4 of 7 (SideEffectRecorded), run 01R
  class     payload
  field     request
  reason    the request differs
  expected  GET http://h/customers/41
  got       GET http://h/customers/42
                                    ^
`},
		{"another kind", agent.Divergence{
			RunID: "01R", MismatchError: step.MismatchError{Seq: 3, Kind: event.KindToolCallCompleted, ExpectedKind: event.KindSideEffectRecorded, Class: "kind"}}, `diverged at event 3 of 7 (SideEffectRecorded), run 01R
  class     kind
  kind      expected SideEffectRecorded, got ToolCallCompleted
`},
		{"a replay that goes on where the run had ended, with hostile values", agent.Divergence{
			RunID: "\x1b[2J", MismatchError: step.MismatchError{Seq: 8, Kind: event.KindSideEffectRecorded, Class: "exhausted", Field: "na\u202eme", Got: "\x1b]0;x\a"}}, `diverged at event 8 of 7 (end of the run), run \x1b[2J
  class     exhausted
  kind      expected end of the run, got SideEffectRecorded
  field     na\u202eme
` + "  expected  \n" + `  got       \x1b]0;x\a
            ^
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			view.Divergence(terminal.New(&b), &c.d, 7)
			if d := cmp.Diff(c.want, b.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReplayAllTally(t *testing.T) {
	var total tally
	for _, v := range []starling.Verdict{
		{}, {}, {Verdict: agent.Verdict{Open: true}}, {Refused: &failure{code: exitRefused}},
		{Verdict: agent.Verdict{Divergence: &agent.Divergence{}}}, {Corrupt: errors.New("flipped")},
	} {
		total.add(v)
	}
	const want = "6 runs: 2 identical, 1 open and identical so far, 1 diverged, 1 invalid, 1 not replayed"
	if total.String() != want || total.code != exitInvalid {
		t.Errorf("got %s with code %d", &total, total.code)
	}
}

func TestExitCodeOfSeveralRuns(t *testing.T) {
	for _, c := range []struct{ a, b, want int }{
		{exitOK, exitOK, exitOK}, {exitOK, exitFailed, exitFailed}, {exitRefused, exitFailed, exitRefused},
		{exitInvalid, exitRefused, exitInvalid}, {exitRefused, exitInvalid, exitInvalid},
	} {
		if got := worse(c.a, c.b); got != c.want {
			t.Errorf("worse(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestReplayProgressBar replays one call on the interpreter, before somebody
// who looks on at a terminal and before nobody.
func TestReplayProgressBar(t *testing.T) {
	skipShort(t)
	db := filepath.Join(t.TempDir(), "starling.db")
	args := []string{"run", filepath.Join("testdata", "tools", "probe"), "--tool", "spin", "--fuel", "20M", "--db", db}
	if code := Main(args, strings.NewReader(""), io.Discard, io.Discard); code != exitLimit {
		t.Fatalf("run: exit code %d", code)
	}
	recorded, err := openDatabase(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer recorded.Close()
	for _, onTerminal := range []bool{true, false} {
		var out, log strings.Builder
		a := &app{stdout: terminal.New(&out), stderr: terminal.New(&log)}
		a.stderr.Terminal = onTerminal
		if err := a.replay(t.Context(), recorded, []string{db, starling.LastRun}, replayFlags{engine: string(starling.Interpreter)}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), "identical: 4 events\n  at main.spin (") {
			t.Errorf("the result is %q", out.String())
		}
		if shown := strings.Contains(log.String(), "replay") && strings.Contains(log.String(), "%"); shown != onTerminal {
			t.Errorf("on a terminal %t: %q", onTerminal, log.String())
		}
		if end := strings.LastIndexByte(log.String(), '\r'); onTerminal && strings.TrimSpace(log.String()[end:]) != "" {
			t.Errorf("it stays: %q", log.String())
		}
	}
}
