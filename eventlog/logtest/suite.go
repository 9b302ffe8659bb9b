package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/zstd"
)

// section is one promise of a log.
type section struct {
	name string
	test func(*testing.T, eventlog.EventLog)
}

var always = []section{
	{"a run that was synced is read back as it was", readBack},
	{"a run that was synced passes the strict check, head included", strictCheck},
	{"an event that does not continue its run is refused and changes nothing", refusals},
	{"nothing follows a terminal event, and no run id is used twice", ended},
	{"reading a run that does not exist says so", unknownRun},
	{"runs do not see each other", separateRuns},
	{"events are read on from a number, and reading may stop early", eventsAfter},
	{"a run of long payloads is read and streamed to its end", longPayloads},
	{"a stream goes from history to live without gap or repetition", streamHistoryThenLive},
	{"a stream waits for a run that has not begun", streamWaits},
	{"a stream that nobody reads loses nothing and blocks nobody", streamSlowReader},
	{"a stream ends with its context and with its log", streamEnds},
	{"summaries add up, the newest run first", listing},
	{"pages filter, count and bound", paging},
	{"modules are kept by digest", modules},
	{"a run has its modules or does not begin", modulesInUse},
	{"files are kept by digest", contentsKept},
	{"files are kept as long as a run needs them", contentsInUse},
	{"a run has all its files or does not name them", contentsAtOnce},
	{"a barrier with nothing before it returns at once", idleBarrier},
	{"after Close every method says so", closed},
	{"many runs are written and read at once", concurrent},
	{"the log agrees with a simple model", model},
}

// stores are for an [eventlog.Store].
var stores = []section{
	{"a namespace is the runs whose ids begin with it and a slash", namespaces},
	{"pruning removes whole runs, and those alone that match", pruning},
	{"a writer in an earlier epoch, or in none, has lost its run", fencing},
	{"what an earlier writer has on its way ends at the fence", fencingOnTheWay},
	{"a writer who has lost nothing hears of the fence when it appends", fencingIdle},
}

// transactors are for an [eventlog.Transactor].
var transactors = []section{
	{"tables are made once, and further steps later", tables},
	{"what is stored in a table is read back as it was", tableValues},
	{"an event and a row are there together", transacting},
	{"a transaction that fails leaves nothing", undoing},
	{"a row that exists fails the transaction, whoever is told", conflicting},
	{"a transaction and a writer may continue a run alternately", alternating},
	{"a transaction appends in the epoch that it has made", transactingFenced},
	{"transactions are as if one came after the other", serialising},
	{"a view shows one state and changes nothing", viewing},
	{"a function that panics harms nobody but its caller", panicking},
	{"transactions and writers of many runs work at once", transactingAtOnce},
	{"a sealed database shows what was changed, removed and put elsewhere", sealing},
	{"runs that are removed from a sealed database are known to be gone", sealedPruning},
}

// Run tests a log, including the interfaces it implements beside EventLog. Open
// returns a new, empty log; the suite closes it.
func Run(t *testing.T, open func(testing.TB) eventlog.EventLog) {
	sections := always
	probe := open(t)
	if _, ok := probe.(eventlog.Store); ok {
		sections = slices.Concat(sections, stores)
	}
	if _, ok := probe.(eventlog.Transactor); ok {
		sections = slices.Concat(sections, transactors)
	}
	if err := probe.Close(); err != nil {
		t.Error(err)
	}
	for _, s := range sections {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			log := open(t)
			defer log.Close()
			s.test(t, log)
			Counted(t, log)
		})
	}
}

// append1 appends one event.
func append1(t testing.TB, log eventlog.EventLog, e event.Event) {
	t.Helper()
	if err := log.Append(t.Context(), e.RunID, e); err != nil {
		t.Fatal(err)
	}
}

// store appends events and waits for them.
func store(t testing.TB, log eventlog.EventLog, evs ...event.Event) {
	t.Helper()
	for _, e := range evs {
		append1(t, log, e)
	}
	if err := log.Sync(t.Context(), evs[0].RunID); err != nil {
		t.Fatal(err)
	}
}

func readBack(t *testing.T, log eventlog.EventLog) {
	want := Finished("ns/run-1", 5)
	store(t, log, want...)
	got, err := log.Read(t.Context(), "ns/run-1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func strictCheck(t *testing.T, log eventlog.EventLog) {
	evs := Finished("run-1", 5)
	store(t, log, evs...)
	r, err := eventlog.CheckRun(t.Context(), log, "run-1", eventlog.CheckOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	last := evs[len(evs)-1]
	if r.Events != last.Seq || r.Open || r.Terminal != last.Kind || r.Head != last.Hash() {
		t.Errorf("report %+v", r)
	}
	if !r.HeadKept {
		t.Error("the log keeps no head of the run")
	}
}

// refusals are tried on a run at event 2.
func refusals(t *testing.T, log eventlog.EventLog) {
	c := Chain{RunID: "run-1"}
	start, second := c.Start("g"), c.Effect(1)
	good := c.Effect(2)
	with := func(change func(*event.Event)) event.Event {
		e := good
		change(&e)
		return e
	}
	started := func(id string) event.Event {
		c := Chain{RunID: id}
		return c.Start("g")
	}
	store(t, log, start, second)
	for _, tc := range []struct {
		name  string
		run   string
		event event.Event
	}{
		{"the wrong run", "run-2", good},
		{"no run in the event", "run-1", with(func(e *event.Event) { e.RunID = "" })},
		{"no run at all", "", good},
		{"a gap", "run-1", with(func(e *event.Event) { e.Seq = 4 })},
		{"a repetition", "run-1", second},
		{"number zero", "run-1", with(func(e *event.Event) { e.Seq = 0 })},
		{"the hash of another event", "run-1", with(func(e *event.Event) { e.PrevHash = second.PrevHash })},
		{"no hash", "run-1", with(func(e *event.Event) { e.PrevHash = nil })},
		{"an unknown kind", "run-1", with(func(e *event.Event) { e.Kind = 200 })},
		{"a second RunStarted", "run-1", with(func(e *event.Event) { e.Kind = event.KindRunStarted })},
		{"no payload", "run-1", with(func(e *event.Event) { e.Payload = nil })},
		{"a payload that is not canonical", "run-1", with(func(e *event.Event) { e.Payload = []byte{0x18, 0x01} })},
		{"a payload with a tail", "run-1", with(func(e *event.Event) { e.Payload = []byte{0x01, 0x01} })},
		{"a payload that nests too deep", "run-1", with(func(e *event.Event) { e.Payload = nested(200) })},
		{"a payload that is too large", "run-1", with(func(e *event.Event) { e.Payload = make([]byte, eventlog.MaxPayloadBytes+1) })},
		{"a new run that begins with number two", "run-3", with(func(e *event.Event) { e.RunID = "run-3" })},
		{"a new run that begins with an effect", "run-3", with(func(e *event.Event) { e.RunID, e.Seq, e.PrevHash = "run-3", 1, nil })},
		{"a first event with a predecessor", "run-3", with(func(e *event.Event) { e.RunID, e.Seq, e.Kind = "run-3", 1, event.KindRunStarted })},
		{"a run id that is not UTF-8", "\xff", with(func(e *event.Event) { e.RunID = "\xff" })},
		{"a new run whose id is a command", "$(id)", started("$(id)")},
		{"a new run whose id is a flag", "--help", started("--help")},
		{"a new run whose id has a control character", "a\x1b[2J", started("a\x1b[2J")},
		{"a new run whose id has a line break", "a\nb", started("a\nb")},
		{"a new run whose id has a character that reorders others", "a\u202eb", started("a\u202eb")},
	} {
		if err := log.Append(t.Context(), tc.run, tc.event); !errors.Is(err, eventlog.ErrInvalidAppend) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	store(t, log, good)
	if got, err := log.Read(t.Context(), "run-1"); err != nil || len(got) != 3 {
		t.Errorf("%d events, %v", len(got), err)
	}
	if _, err := log.Read(t.Context(), "run-3"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("a refused event began a run: %v", err)
	}
}

// nested is n arrays inside each other.
func nested(n int) []byte {
	b := make([]byte, n+1)
	for i := range n {
		b[i] = 0x81
	}
	b[n] = 0x01
	return b
}

func ended(t *testing.T, log eventlog.EventLog) {
	for _, end := range []event.Payload{event.RunCompleted{FinalText: "null"}, event.RunFailed{Error: "e", ErrorType: event.ErrorTool}, event.RunCancelled{Reason: "r"}} {
		c := Chain{RunID: "run-" + end.EventKind().String()}
		first := c.Start("g")
		whole := Relink([]event.Event{first, c.Next(end)}) // with the root in its end
		store(t, log, whole...)
		c = Resume(whole)
		for name, e := range map[string]event.Event{"an effect": c.Effect(1), "the end again": c.Next(end), "the first event again": first} {
			if err := log.Append(t.Context(), c.RunID, e); !errors.Is(err, eventlog.ErrInvalidAppend) {
				t.Errorf("%s after %v: %v", name, end.EventKind(), err)
			}
		}
	}
}

func unknownRun(t *testing.T, log eventlog.EventLog) {
	if _, err := log.Read(t.Context(), "nobody"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Read: %v", err)
	}
	if _, err := eventlog.CheckRun(t.Context(), log, "nobody", eventlog.CheckOptions{}); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("CheckRun: %v", err)
	}
	for _, err := range log.Events(t.Context(), "nobody", 0) {
		if !errors.Is(err, eventlog.ErrRunNotFound) {
			t.Errorf("Events: %v", err)
		}
	}
}

func separateRuns(t *testing.T, log eventlog.EventLog) {
	a, b := Chain{RunID: "a"}, Chain{RunID: "b"}
	store(t, log, a.Start("a"))
	store(t, log, b.Start("b"))
	store(t, log, a.Effect(1), a.Complete())
	store(t, log, b.Effect(1))
	for id, want := range map[string]int{"a": 3, "b": 2} {
		if got, err := log.Read(t.Context(), id); err != nil || len(got) != want {
			t.Errorf("run %s: %d events, %v", id, len(got), err)
		}
	}
}

func eventsAfter(t *testing.T, log eventlog.EventLog) {
	evs := Finished("run-1", 2000)
	store(t, log, evs...)
	for _, after := range []uint64{0, 1, 1500, 2004, math.MaxInt64, math.MaxUint64 - 1} {
		want := after
		for e, err := range log.Events(t.Context(), "run-1", after) {
			if want++; err != nil || e.Seq != want {
				t.Fatalf("after %d: event %d, want %d: %v", after, e.Seq, want, err)
			}
			if want == 1900 {
				break
			}
		}
		if want != max(1900, after) {
			t.Errorf("after %d: ended at %d", after, want)
		}
	}
}

func listing(t *testing.T, log eventlog.EventLog) {
	answer := event.AssistantMessageCompleted{TurnID: "t1", InputTokens: 100, OutputTokens: 20, CostUSD: 0.25}
	for i, id := range []string{"old", "new"} {
		c := Chain{RunID: id, Clock: int64(i+1) * 1e9}
		store(t, log, c.Start("g"), c.Next(event.TurnStarted{TurnID: "t1"}), c.Next(answer),
			c.Next(event.ToolCallScheduled{CallID: "c", Attempt: 1}), c.Next(event.ToolCallFailed{CallID: "c", Attempt: 1}),
			c.Next(event.ToolCallScheduled{CallID: "c", Attempt: 2}))
		if id == "old" {
			c.Clock = 0 // it is set back: the run took no less than no time
			store(t, log, c.Next(event.ToolCallFailed{CallID: "c", Attempt: 2}))
		}
	}
	got, err := log.ListRuns(t.Context())
	if err != nil || len(got) != 2 || got[0].RunID != "new" || got[1].RunID != "old" || got[1].DurationMs != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := eventlog.RunSummary{RunID: "new", StartedAt: time.Unix(2, 0).UTC(), LastSeq: 6, TurnCount: 1, ToolCallCount: 1,
		InputTokens: 100, OutputTokens: 20, CostUSD: 0.25, DurationMs: 5, Head: got[0].Head}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Error(diff)
	}
	found, err := log.Run(t.Context(), "new")
	if err != nil || found != got[0] {
		t.Errorf("Run: %+v, %v", found, err)
	}
}

func paging(t *testing.T, log eventlog.EventLog) {
	seedPages(t, log)
	for _, tc := range []struct {
		name  string
		o     eventlog.RunPageOptions
		want  []string
		total int
	}{
		{"all, newest first", eventlog.RunPageOptions{Limit: 3}, []string{"Run-5", "Run-4", "Run-3"}, 6},
		{"the next page", eventlog.RunPageOptions{Limit: 3, Offset: 3}, []string{"Run-2", "Run-1", "Run-0"}, 6},
		{"a page behind the end", eventlog.RunPageOptions{Limit: 3, Offset: 9}, nil, 6},
		{"no limit, negative offset", eventlog.RunPageOptions{Offset: -4}, []string{"Run-5", "Run-4", "Run-3", "Run-2", "Run-1", "Run-0"}, 6},
		{"completed", eventlog.RunPageOptions{Status: eventlog.StatusCompleted}, []string{"Run-3", "Run-0"}, 2},
		{"failed", eventlog.RunPageOptions{Status: eventlog.StatusFailed}, []string{"Run-4", "Run-1"}, 2},
		{"open", eventlog.RunPageOptions{Status: eventlog.StatusOpen}, []string{"Run-5", "Run-2"}, 2},
		{"cancelled", eventlog.RunPageOptions{Status: eventlog.StatusCancelled}, nil, 0},
		{"query in another case", eventlog.RunPageOptions{Query: "rUN-4"}, []string{"Run-4"}, 1},
		{"query with a wildcard is taken as it is", eventlog.RunPageOptions{Query: "%"}, nil, 0},
		{"started after", eventlog.RunPageOptions{StartedAfter: time.Unix(3, 0)}, []string{"Run-5", "Run-4"}, 2},
		{"started after all times", eventlog.RunPageOptions{StartedAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil, 0},
		{"started after a time before all", eventlog.RunPageOptions{StartedAfter: time.Date(1026, 1, 1, 0, 0, 0, 0, time.UTC), Limit: 1}, []string{"Run-5"}, 6},
		{"from a time on", eventlog.RunPageOptions{From: time.Unix(3, 0), Limit: 2}, []string{"Run-3", "Run-2"}, 6},
		{"from a time on, but for the first", eventlog.RunPageOptions{From: time.Unix(3, 0), Offset: 1, Limit: 2}, []string{"Run-2", "Run-1"}, 6},
		{"from a time on that are open", eventlog.RunPageOptions{From: time.Unix(4, 0), Status: eventlog.StatusOpen}, []string{"Run-2"}, 2},
		{"from before the first", eventlog.RunPageOptions{From: time.Unix(-1, 0)}, nil, 6},
		{"with tool calls", eventlog.RunPageOptions{RequireToolCalls: true, Limit: 2}, []string{"Run-4", "Run-2"}, 3},
		{"all at once", eventlog.RunPageOptions{RequireToolCalls: true, Query: "run", StartedAfter: time.Unix(0, 1), Status: eventlog.StatusFailed}, []string{"Run-4"}, 1},
	} {
		page, err := log.ListRunsPage(t.Context(), tc.o)
		var ids []string
		for _, r := range page.Runs {
			ids = append(ids, r.RunID)
		}
		if diff := cmp.Diff(tc.want, ids); err != nil || diff != "" || page.TotalMatching != tc.total {
			t.Errorf("%s: total %d, %v\n%s", tc.name, page.TotalMatching, err, diff)
		}
	}
	if page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{}); err != nil || page.Limit != eventlog.DefaultPageLimit {
		t.Errorf("default limit %d, %v", page.Limit, err)
	}
	if _, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Status: "no such"}); err == nil {
		t.Error("an unknown status was accepted")
	}
}

// seedPages stores six runs that start a second apart: completed, failed and
// open in turn, every other run with a tool call.
func seedPages(t testing.TB, log eventlog.EventLog) {
	for i := range 6 {
		c := Chain{RunID: fmt.Sprintf("Run-%d", i), Clock: int64(i) * 1e9}
		evs := []event.Event{c.Start("g")}
		if i%2 == 0 {
			evs = append(evs, c.Next(event.ToolCallScheduled{CallID: "c", Attempt: 1}), c.Next(event.ToolCallCompleted{CallID: "c", Attempt: 1}))
		}
		switch i % 3 {
		case 0:
			evs = append(evs, c.Complete())
		case 1:
			evs = append(evs, c.Next(event.RunFailed{Error: "e"}))
		}
		store(t, log, evs...)
	}
}

func modules(t *testing.T, log eventlog.EventLog) {
	ms, ok := log.(eventlog.ModuleStore)
	if !ok {
		t.Skip("SKIPPED: the log keeps no modules")
	}
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	digest, err := ms.PutModule(t.Context(), wasm)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ms.PutModule(t.Context(), wasm); err != nil || again != digest {
		t.Errorf("again: %v, %v", again, err)
	}
	wasm[0] = 1 // the log has its own copy
	got, err := ms.Module(t.Context(), digest)
	if err != nil || string(got) != "\x00asm\x01\x00\x00\x00" {
		t.Errorf("%q, %v", got, err)
	}
	large := make([]byte, 1<<20+1)
	for i := range large {
		large[i] = byte(i >> 10)
	}
	for _, size := range []int{0, 1, 1 << 18, 1<<18 + 1, 1 << 20, len(large)} {
		digest, err := ms.PutModule(t.Context(), large[:size])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ms.Module(t.Context(), digest); err != nil || !bytes.Equal(got, large[:size]) {
			t.Errorf("a module of %d bytes came back with %d: %v", size, len(got), err)
		}
	}
	noise := make([]byte, 1<<19)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for what, b := range map[string][]byte{
		"that cannot be compressed": noise, "that is compressed already": zstd.Compress([]byte("a text")),
		"that is cut off while compressed": zstd.Compress(noise)[:1<<18], "of zeros": make([]byte, eventlog.MaxModuleBytes),
	} {
		digest, err := ms.PutModule(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ms.Module(t.Context(), digest); err != nil || !bytes.Equal(got, b) {
			t.Errorf("a module %s, of %d bytes, came back with %d: %v", what, len(b), len(got), err)
		}
	}
	if found, err := ms.HasModule(t.Context(), digest); err != nil || !found {
		t.Errorf("a module that was stored: %v, %v", found, err)
	}
	digest[0]++
	if found, err := ms.HasModule(t.Context(), digest); err != nil || found {
		t.Errorf("a module that was not stored: %v, %v", found, err)
	}
	if _, err := ms.Module(t.Context(), digest); !errors.Is(err, eventlog.ErrModuleNotFound) {
		t.Errorf("unknown digest: %v", err)
	}
	if _, err := ms.PutModule(t.Context(), make([]byte, eventlog.MaxModuleBytes+1)); err == nil {
		t.Error("a module beyond the limit was taken")
	}
}

// modulesInUse begins runs while modules that nothing uses are removed: each durable run has
// its module, and a run whose module was removed before is refused.
func modulesInUse(t *testing.T, log eventlog.EventLog) {
	db, ok := log.(eventlog.Database)
	if !ok {
		return // the log removes no modules
	}
	stop := removing(t, db)
	begun := 0
	for i := range 60 {
		digest, err := db.PutModule(t.Context(), []byte{byte(i), byte(i >> 8)})
		if err != nil {
			t.Fatal(err)
		}
		c := Chain{RunID: fmt.Sprint("run-", i)}
		started := event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "g",
			ToolSchemas: []event.ToolSchemaRef{{Name: "t", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:]}}}}
		err = db.Append(t.Context(), c.RunID, c.Next(started))
		if err == nil {
			err = db.Sync(t.Context(), c.RunID)
		}
		switch {
		case err == nil:
			begun++
			if _, err := db.Module(t.Context(), digest); err != nil {
				t.Errorf("run %d: %v", i, err)
			}
		case !errors.Is(err, eventlog.ErrModuleNotFound) || !errors.Is(err, eventlog.ErrInvalidAppend):
			t.Fatal(err)
		}
	}
	stop()
	if _, err := db.RemoveUnusedModules(t.Context()); err != nil {
		t.Error(err)
	}
	if c, err := eventlog.CountModules(t.Context(), db, ""); err != nil || c.Modules != begun {
		t.Errorf("%d runs have begun, and there are %d modules, %v", begun, c.Modules, err)
	}
}

// removing removes unused modules again and again, until stop is called.
func removing(t *testing.T, db eventlog.Database) (stop func()) {
	done := make(chan struct{})
	var remover sync.WaitGroup
	remover.Go(func() {
		for {
			if _, err := db.RemoveUnusedModules(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	return func() {
		close(done)
		remover.Wait()
	}
}

func idleBarrier(t *testing.T, log eventlog.EventLog) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := log.Sync(ctx, "nobody"); err != nil {
		t.Error(err)
	}
}

func closed(t *testing.T, log eventlog.EventLog) {
	store(t, log, Finished("run-1", 1)...)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	c := Chain{RunID: "run-2"}
	_, readErr := log.Read(t.Context(), "run-1")
	_, streamErr := log.Stream(t.Context(), "run-1")
	errs := map[string]error{
		"Append": log.Append(t.Context(), "run-2", c.Start("g")),
		"Sync":   log.Sync(t.Context(), "run-2"),
		"Read":   readErr,
		"Stream": streamErr,
	}
	_, errs["ListRuns"] = log.ListRuns(t.Context())
	_, errs["ListRunsPage"] = log.ListRunsPage(t.Context(), eventlog.RunPageOptions{})
	_, errs["Run"] = log.Run(t.Context(), "run-1")
	if l, ok := log.(eventlog.ModuleStore); ok {
		digest, err := l.PutModule(t.Context(), []byte("m"))
		errs["PutModule"] = err
		errs["PutContents"] = l.PutContents(t.Context(), "", []eventlog.Content{{Bytes: []byte("m")}})
		_, errs["Module"] = l.Module(t.Context(), digest)
		_, errs["HasModule"] = l.HasModule(t.Context(), digest)
	}
	if l, ok := log.(eventlog.Transactor); ok {
		errs["CreateTables"] = l.CreateTables(t.Context(), jobTables)
		errs["Transact"] = l.Transact(t.Context(), func(eventlog.Tx) error { return nil })
		errs["View"] = l.View(t.Context(), func(eventlog.Querier) error { return nil })
	}
	for name, err := range errs {
		if !errors.Is(err, eventlog.ErrLogClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
