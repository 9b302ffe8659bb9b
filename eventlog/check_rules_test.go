package eventlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// null is an encoded null.
var null = canon.Raw{0xf6}

// payload is any payload under any kind, for what no struct can say.
type payload struct {
	kind event.Kind
	raw  canon.Raw
}

func (p payload) EventKind() event.Kind        { return p.kind }
func (p payload) MarshalCBOR() ([]byte, error) { return p.raw, nil }

// Short names, so that a run fits on a line.
func started() event.Payload {
	return event.RunStarted{SchemaVersion: 1, Params: null, ToolSchemas: []event.ToolSchemaRef{}}
}
func turn(id string) event.Payload { return event.TurnStarted{TurnID: id} }
func answer(id string) event.Payload {
	return event.AssistantMessageCompleted{TurnID: id}
}
func trip(turn string) event.Payload {
	return event.BudgetExceeded{TurnID: turn}
}
func call(id string, n uint32) event.Payload {
	return event.ToolCallScheduled{CallID: id, Attempt: n, Args: null}
}
func nestedCall(id, parent string) event.Payload {
	return event.ToolCallScheduled{CallID: id, Attempt: 1, Args: null, ParentID: parent}
}
func done(id string, n uint32) event.Payload {
	return event.ToolCallCompleted{CallID: id, Attempt: n, Result: null}
}
func failed(id string, n uint32) event.Payload {
	return event.ToolCallFailed{CallID: id, Attempt: n}
}
func effect(call string) event.Payload {
	return event.SideEffectRecorded{Name: "e", Value: null, CallID: call}
}

// given is a call that is given files at paths, and left an outcome that names files.
func given(paths ...string) event.Payload {
	w := &event.Workspace{Root: make([]byte, event.HashSize)}
	for _, at := range paths {
		w.Mounts = append(w.Mounts, event.Mount{At: at, Writable: true})
	}
	return event.ToolCallScheduled{CallID: "a", Attempt: 1, Args: null, Workspace: w}
}
func left(size int) event.Payload {
	return event.ToolCallCompleted{CallID: "a", Attempt: 1, Result: null, Meter: event.Meter{Workspace: make([]byte, size)}}
}

// terminal stands for a terminal event that carries the right root.
type terminal struct{ event.Payload }

func completed() event.Payload { return terminal{event.RunCompleted{}} }
func aborted() event.Payload   { return terminal{event.RunFailed{}} }
func cancelled() event.Payload { return terminal{event.RunCancelled{}} }

// noMounts is a scheduled call with files and an empty list of mounts.
var noMounts, _ = event.EncodePayload(event.ToolCallScheduled{CallID: "a", Attempt: 1, Args: null, Workspace: &event.Workspace{Root: make([]byte, event.HashSize), Mounts: []event.Mount{}}})

func manyPaths() (paths []string) {
	for i := range event.MaxMounts + 1 {
		paths = append(paths, fmt.Sprintf("/%02d", i))
	}
	return paths
}

// runOf chains payloads.
func runOf(ps ...event.Payload) []event.Event {
	c := logtest.Chain{RunID: "r"}
	var tree canon.Tree
	var evs []event.Event
	for _, p := range ps {
		if t, ok := p.(terminal); ok {
			p = withRoot(t.Payload, tree.Root())
		}
		e := c.Next(p)
		tree.Add(e.Hash())
		evs = append(evs, e)
	}
	return evs
}

func withRoot(p event.Payload, root canon.Hash) event.Payload {
	switch p := p.(type) {
	case event.RunCompleted:
		p.MerkleRoot = root[:]
		return p
	case event.RunFailed:
		p.MerkleRoot = root[:]
		return p
	case event.RunCancelled:
		p.MerkleRoot = root[:]
		return p
	}
	return p
}

func TestRules(t *testing.T) {
	resumed := event.RunResumed{}
	for _, tc := range []struct {
		name   string
		run    []event.Event
		want   string // invariant in the profile of Validate; empty when valid
		strict string // invariant in strict mode, when want is empty
		seq    uint64
	}{
		{"a run with a turn and a call", runOf(started(), turn("t"), answer("t"), call("c", 1), effect("c"), done("c", 1), completed()), "", "", 0},
		{"parallel calls", runOf(started(), call("a", 1), call("b", 1), effect("b"), effect("a"), done("b", 1), failed("a", 1), completed()), "", "", 0},
		{"a call that is tried again", runOf(started(), call("a", 1), failed("a", 1), call("a", 2), done("a", 2), completed()), "", "", 0},
		{"a call inside a call", runOf(started(), call("a", 1), nestedCall("b", "a"), done("b", 1), done("a", 1), completed()), "", "", 0},
		{"the shortest run", runOf(started(), completed()), "", "", 0},
		{"reserved kinds", runOf(started(), event.TurnFailed{}, event.ContextTruncated{}, completed()), "", "", 0},
		{"no event", nil, "D1", "", 0},
		{"a run that begins in the middle", runOf(started(), effect(""), completed())[1:], "D1", "", 1},
		{"a missing event", drop(runOf(started(), effect(""), effect(""), completed()), 1), "D1", "", 2},
		{"an event of another run", rename(runOf(started(), effect(""), completed()), 1, "other"), "D2", "", 2},
		{"an event of no run", rename(runOf(started(), completed()), 0, ""), "D2", "", 1},
		{"a first event with a predecessor", change(runOf(started(), completed()), 0, func(e *event.Event) { e.PrevHash = make([]byte, 32) }), "D3", "", 1},
		{"no terminal event", runOf(started(), effect("")), "D4", "", 2},
		{"two terminal events", runOf(started(), completed(), completed()), "D4", "", 2},
		{"an event after the terminal one", runOf(started(), aborted(), effect("")), "D4", "", 2},
		{"another first event", runOf(effect(""), completed()), "D5", "", 1},
		{"schema zero", runOf(event.RunStarted{}, completed()), "D5", "", 1},
		{"a turn inside a turn", runOf(started(), turn("a"), turn("b"), completed()), "D6", "", 3},
		{"an answer to no turn", runOf(started(), answer("a"), completed()), "D6", "", 2},
		{"an answer to another turn", runOf(started(), turn("a"), answer("b"), completed()), "D6", "", 3},
		{"a turn that is open at the end", runOf(started(), turn("a"), completed()), "D6", "", 3},
		{"a turn that is open when the run fails", runOf(started(), turn("a"), aborted()), "", "", 0},
		{"a turn that is open when the run is cancelled", runOf(started(), turn("a"), cancelled()), "", "", 0},
		{"a turn that the budget ended", runOf(started(), turn("a"), trip("a"), aborted()), "", "", 0},
		{"a trip of another turn", runOf(started(), turn("a"), trip("b"), turn("c"), aborted()), "D6", "", 4},
		{"a turn that died with its process", runOf(started(), turn("a"), resumed, turn("b"), answer("b"), completed()), "", "", 0},
		{"a call without outcome", runOf(started(), call("a", 1), completed()), "D7", "", 3},
		{"a call without outcome in a run that failed", runOf(started(), call("a", 1), aborted()), "D7", "", 3},
		{"an outcome without call", runOf(started(), done("a", 1), completed()), "D7", "", 2},
		{"two outcomes", runOf(started(), call("a", 1), done("a", 1), failed("a", 1), completed()), "D7", "", 4},
		{"the outcome of another attempt", runOf(started(), call("a", 1), done("a", 2), completed()), "D7", "", 3},
		{"the same attempt twice at once", runOf(started(), call("a", 1), call("a", 1), completed()), "D7", "", 3},
		{"a call that died with its process", runOf(started(), call("a", 1), resumed, call("b", 1), done("b", 1), completed()), "", "", 0},
		{"the outcome of a call that died", runOf(started(), call("a", 1), resumed, done("a", 1), completed()), "D7", "", 4},
		{"a wrong root", runOf(started(), event.RunCompleted{MerkleRoot: make([]byte, 32)}), "D8", "", 2},
		{"no root", runOf(started(), event.RunFailed{}), "D8", "", 2},

		{"an unknown kind", runOf(started(), payload{200, canon.Raw{0xa0}}, completed()), "", "S1", 2},
		{"an unknown field, which is ignored", runOf(started(), payload{event.KindUserMessageAppended, canon.Raw("\xa2\x61x\x01\x67content\x60")}, completed()), "", "", 0},
		{"an unknown field beside one of the wrong type", runOf(started(), payload{event.KindUserMessageAppended, canon.Raw("\xa2\x61x\x01\x67content\x01")}, completed()), "", "S2", 2},
		{"a missing field", runOf(started(), payload{event.KindUserMessageAppended, canon.Raw("\xa0")}, completed()), "", "S2", 2},
		{"a second start", runOf(started(), started(), completed()), "", "S3", 2},
		{"a finished attempt that is used again", runOf(started(), call("a", 1), done("a", 1), call("a", 1), done("a", 1), completed()), "", "S4", 4},
		{"an attempt that is left out", runOf(started(), call("a", 1), failed("a", 1), call("a", 3), done("a", 3), completed()), "", "S4", 4},
		{"a call that begins with attempt zero", runOf(started(), call("a", 0), done("a", 0), completed()), "", "S4", 2},
		{"two attempts at once", runOf(started(), call("a", 1), call("a", 2), done("a", 1), done("a", 2), completed()), "", "S4", 3},
		{"a finished attempt that a resumed run uses again", runOf(started(), call("a", 1), done("a", 1), resumed, call("a", 1), done("a", 1), completed()), "", "S4", 5},
		{"an effect of no call", runOf(started(), effect("x"), completed()), "", "S5", 2},
		{"an effect of a finished call", runOf(started(), call("a", 1), done("a", 1), effect("a"), completed()), "", "S5", 4},
		{"a call inside a finished call", runOf(started(), call("a", 1), done("a", 1), nestedCall("b", "a"), done("b", 1), completed()), "", "S5", 4},

		{"files", runOf(started(), given("/a", "/a-b", "/b"), left(32), completed()), "", "", 0},
		{"files of an attempt that fails", runOf(started(), given("/a"), failed("a", 1), call("a", 2), done("a", 2), completed()), "", "", 0},
		{"files whose root is short", runOf(started(), event.ToolCallScheduled{CallID: "a", Attempt: 1, Args: null, Workspace: &event.Workspace{Root: make([]byte, 31), Mounts: []event.Mount{{At: "/a"}}}}, left(32), completed()), "", "S7", 2},
		{"files without a mount", runOf(started(), payload{event.KindToolCallScheduled, noMounts}, left(32), completed()), "", "S7", 2},
		{"too many mounts", runOf(started(), given(manyPaths()...), left(32), completed()), "", "S7", 2},
		{"a mount at the root", runOf(started(), given("/"), left(32), completed()), "", "S7", 2},
		{"a mount at a relative path", runOf(started(), given("a"), left(32), completed()), "", "S7", 2},
		{"a mount at a path with ..", runOf(started(), given("/a/../b"), left(32), completed()), "", "S7", 2},
		{"a mount at a path with a slash at the end", runOf(started(), given("/a/"), left(32), completed()), "", "S7", 2},
		{"a mount at a path with a zero byte", runOf(started(), given("/a\x00"), left(32), completed()), "", "S7", 2},
		{"a mount at a long path", runOf(started(), given("/"+strings.Repeat("a", event.MaxMountBytes)), left(32), completed()), "", "S7", 2},
		{"two mounts at a path", runOf(started(), given("/a", "/a"), left(32), completed()), "", "S7", 2},
		{"mounts that are not sorted", runOf(started(), given("/b", "/a"), left(32), completed()), "", "S7", 2},
		{"a mount inside another", runOf(started(), given("/a", "/a-b", "/a/b"), left(32), completed()), "", "S7", 2},
		{"a call that leaves no files of those it was given", runOf(started(), given("/a"), done("a", 1), completed()), "", "S7", 3},
		{"a call that leaves files with a short root", runOf(started(), given("/a"), left(31), completed()), "", "S7", 3},
		{"a call that leaves files, and was given none", runOf(started(), call("a", 1), left(32), completed()), "", "S7", 3},
		{"a second attempt that leaves files of the first", runOf(started(), given("/a"), failed("a", 1), call("a", 2), event.ToolCallCompleted{CallID: "a", Attempt: 2, Result: null, Meter: event.Meter{Workspace: make([]byte, 32)}}, completed()), "", "S7", 5},
		{"a failed call that leaves files", runOf(started(), given("/a"), event.ToolCallFailed{CallID: "a", Attempt: 1, Meter: event.Meter{Workspace: make([]byte, 32)}}, completed()), "", "S7", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantCorrupt(t, eventlog.Validate(tc.run), tc.want, tc.seq)
			strict := tc.strict
			if strict == "" {
				strict = tc.want
			}
			_, err := eventlog.Check(tc.run, eventlog.CheckOptions{Strict: true})
			wantCorrupt(t, err, strict, tc.seq)
		})
	}
}

// TestARunOfANewerProgramIsNotCorrupt: unknown content is no evidence of a change, however
// much of it there is.
func TestARunOfANewerProgramIsNotCorrupt(t *testing.T) {
	unknown := canon.Raw("\xa2\x61x\x01\x6eschema_version\x02")
	for name, run := range map[string][]event.Event{
		"the version alone":          runOf(event.RunStarted{SchemaVersion: 2}, completed()),
		"with a field":               runOf(payload{event.KindRunStarted, unknown}, completed()),
		"with a kind":                runOf(event.RunStarted{SchemaVersion: 99}, payload{77, canon.Raw{0xa0}}, completed()),
		"that is still open":         runOf(event.RunStarted{SchemaVersion: 2}, call("a", 1)),
		"with pairs of another sort": runOf(event.RunStarted{SchemaVersion: 2}, done("a", 1), completed()),
	} {
		for _, strict := range []bool{false, true} {
			_, err := eventlog.Check(run, eventlog.CheckOptions{Strict: strict, AllowOpen: true})
			var where *eventlog.CorruptError
			if !errors.Is(err, eventlog.ErrSchemaTooNew) || errors.Is(err, eventlog.ErrLogCorrupt) || !errors.As(err, &where) || where.Seq != 1 || where.RunID != "r" {
				t.Errorf("%s, strict %v: %v", name, strict, err)
			}
		}
	}
}

func wantCorrupt(t *testing.T, err error, invariant string, seq uint64) {
	t.Helper()
	var corrupt *eventlog.CorruptError
	switch {
	case invariant == "":
		if err != nil {
			t.Error(err)
		}
	case !errors.As(err, &corrupt) || !errors.Is(err, eventlog.ErrLogCorrupt):
		t.Errorf("want %s at event %d, got %v", invariant, seq, err)
	case corrupt.Invariant != invariant || corrupt.Seq != seq:
		t.Errorf("want %s at event %d, got %v", invariant, seq, err)
	}
}

func change(evs []event.Event, i int, f func(*event.Event)) []event.Event {
	f(&evs[i])
	return evs
}

func rename(evs []event.Event, i int, run string) []event.Event {
	return change(evs, i, func(e *event.Event) { e.RunID = run })
}

func drop(evs []event.Event, i int) []event.Event {
	return append(evs[:i:i], evs[i+1:]...)
}

func TestOpenRuns(t *testing.T) {
	for name, run := range map[string][]event.Event{
		"in the middle of a call": runOf(started(), call("a", 1), effect("a")),
		"in the middle of a turn": runOf(started(), turn("t")),
		"at the beginning":        runOf(started()),
	} {
		r, err := eventlog.Check(run, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		last := run[len(run)-1]
		if err != nil || !r.Open || r.Terminal != 0 || r.Events != last.Seq || r.Head != last.Hash() {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if _, err := eventlog.Check(run, eventlog.CheckOptions{}); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s, without AllowOpen: %v", name, err)
		}
	}
	if _, err := eventlog.Check(nil, eventlog.CheckOptions{AllowOpen: true}); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("no events: %v", err)
	}
}

// TestCheckNamesTheChangedEvent changes each event of a run, its content or its link, and
// requires the report to name that event, even if only the root can tell.
func TestCheckNamesTheChangedEvent(t *testing.T) {
	build := func() []event.Event {
		return runOf(started(), call("c", 1), effect("c"), effect("c"), done("c", 1), effect(""), completed())
	}
	for i := range build() {
		for what, f := range map[string]func(*event.Event){
			"timestamp": func(e *event.Event) { e.Timestamp++ },
			"link":      func(e *event.Event) { e.PrevHash = make([]byte, 32) },
		} {
			last := i == len(build())-1
			if what == "timestamp" && last {
				continue // nothing within a run covers its last event; see CheckRun
			}
			err := eventlog.Validate(change(build(), i, f))
			wantCorrupt(t, err, "D3", uint64(i+1))
		}
	}
	// Without a terminal event and a head, the last link does not tell which side
	// was changed; the report is at the earlier event, and mentions both.
	open := build()[:4]
	open[3].PrevHash = make([]byte, 32)
	_, err := eventlog.Check(open, eventlog.CheckOptions{AllowOpen: true})
	wantCorrupt(t, err, "D3", 3)
}
