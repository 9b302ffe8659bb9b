package inspect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/internal/share"
)

func TestConfigurationsThatAreRefused(t *testing.T) {
	scope := inspect.Only(eventview.View{Log: store.Memory()}, "")
	for _, c := range []inspect.Config{
		{}, {Scope: scope, Prefix: "inspect"}, {Scope: scope, Prefix: "/inspect/"}, {Scope: scope, Prefix: "/{x}"},
		{Scope: scope, Origins: []string{"127.0.0.1:80"}}, {Scope: scope, Origins: []string{"http://127.0.0.1/x"}},
	} {
		if _, err := inspect.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestListOfRuns(t *testing.T) {
	log := store.Memory()
	for i := range 130 {
		record(t, log, fmt.Sprintf("RUN%03d", i), `{"city":"Oslo"}`)
	}
	record(t, log, "FAILED", `{}`)
	long(t, log, "OPEN", 3)
	b := openView(t, viewOf(log, ""))
	rows := func(path string) int { return strings.Count(b.wants(path), "<tr data-row>") }
	for path, want := range map[string]int{
		"/": 50, "/?offset=100": 32, "/?q=state:failed": 1, "/?q=state:open": 1, "/?q=run01": 10, "/?q=nothing": 0, "/?q=tool:weather&offset=100": 31,
		"/?per_page=2": 2, "/?per_page=200": 132, "/?per_page=100000": 132, "/?per_page=0": 50, "/?per_page=200&status=failed": 1, "/?status=open": 1, "/?status=completed&per_page=3": 3,
		"/?offset=-5": 50, "/?offset=x": 50, "/?offset=99999999999999999999": 0,
	} {
		if got := rows(path); got != want {
			t.Errorf("%s: %d rows, want %d", path, got, want)
		}
	}
	page := b.wants("/", "completed<i>130</i>", "failed<i>1</i>", "open<i>1</i>", "all<i>132</i>", "1–50 of 132", `href="/?offset=50" rel="next"`, `<option value="tool:weather">`)
	if strings.Contains(page, ">Cost<") || strings.Contains(page, ">5xx<") {
		t.Error("a column of zeros is shown")
	}
	b.wants("/?per_page=3&status=completed", `href="/?offset=3&amp;per_page=3&amp;q=state%3Acompleted" rel="next"`)
	b.wants("/?offset=5000", "This page has no more runs", `href="/?offset=82" rel="prev"`, "0–0 of 132")
	b.wants("/?offset=5000&q=run01", "This page has no more runs", `href="/?q=run01" rel="prev"`)
	b.wants("/?offset=5000&q=nothing", "No run matches")
	if code, page := b.get("/?q=run01+state:done"); code != http.StatusBadRequest || !strings.Contains(page, "Character 7: &#34;done&#34; is not the state of a run.") || !strings.Contains(page, `value="run01 state:done"`) {
		t.Errorf("a state that there is not: %d, %s", code, page)
	}
	if code, page := b.get("/?since=foo"); code != http.StatusBadRequest || !strings.Contains(page, `value="since:foo"`) || !strings.Contains(page, "not a time") {
		t.Errorf("a time that is not one: %d, %s", code, page)
	}
	b.wants("/?state=completed&q=run01", "1–10 of 10", `value="run01 state:completed"`)
	b.wants("/?q=run01+state:completed", "1–10 of 10", `href="/?q=run01&#43;state%3Afailed">failed</a>`, "completed<i>10</i>")
	newScript(t, log, "KILLED", time.Now().Add(-3*time.Minute).UnixNano()).at(0, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "x", ToolSchemas: []event.ToolSchemaRef{}})
	b.wants("/?q=killed", `<span class="state warn">open</span>`, "silent for 3m")
	b.wants("/?q=state:failed", "<h2>1 failed</h2>", "<b>1</b><span class=\"which\">weather</span>")
}

// TestTheListIsFollowed reads the list of a run that grows.
func TestTheListIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := store.Memory()
		long(t, log, "R", 3)
		view := viewOf(log, "")
		left := 0
		view.Follow = func(context.Context) (func(), error) { return func() { left++ }, nil }
		s, err := inspect.New(inspect.Config{Scope: inspect.Only(view, "")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		answer, ended := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(ended)
			s.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/live", nil))
		}()
		time.Sleep(time.Minute)
		long(t, log, "S", 1)
		time.Sleep(time.Minute)
		hangUp()
		<-ended
		if text := answer.Body.String(); strings.Count(text, "data: changed\n\n") != 1 || strings.Count(text, ": still here") < 4 || left != 1 {
			t.Errorf("it was left %d times, after %q", left, text)
		}
	})
}

// TestAnEncryptedRunHasItsIdOnce shows a run whose goal is not visible: the id
// shown in its place is not repeated.
func TestAnEncryptedRunHasItsIdOnce(t *testing.T) {
	log := store.Memory()
	key, err := store.NewDataKey(make([]byte, store.DataKeySize))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := store.Encrypted(log, key, "")
	if err != nil {
		t.Fatal(err)
	}
	record(t, sealed, "SEALED", `{"city":"Oslo"}`)
	record(t, log, "CLEAR", `{"city":"Oslo"}`)
	b := openView(t, viewOf(log, ""))
	if body := b.wants("/runs/SEALED", "What the run did cannot be read here."); strings.Contains(body, "Nothing is recorded yet.") {
		t.Error("nothing is recorded of an encrypted run")
	}
	page := b.wants("/")
	for id, want := range map[string]int{"SEALED": 1, "CLEAR": 1} {
		if got := strings.Count(page, ">"+id+"<"); got != want {
			t.Errorf("%s stands there %d times, want %d", id, got, want)
		}
	}
}

func TestTimelineIsPaged(t *testing.T) {
	log := store.Memory()
	long(t, log, "LONG", 1001)
	b := openView(t, viewOf(log, ""))
	for path, want := range map[string]string{
		"": "1-200", "?at=1": "1-200", "?at=200": "1-200", "?at=201": "201-400", "?at=1001": "1001-1001", "?at=99999999999": "1001-1001", "?at=x": "1-200",
	} {
		body := b.wants("/runs/LONG/events" + path)
		ids := regexp.MustCompile(`<li id="e(\d+)"`).FindAllStringSubmatch(strings.Split(body, "<template")[0], -1)
		if got := ids[0][1] + "-" + ids[len(ids)-1][1]; got != want {
			t.Errorf("%s: events %s, want %s", path, got, want)
		}
	}
	if body := b.wants("/runs/LONG/events?at=1"); strings.Contains(body, "data-live=") {
		t.Error("the first page of a long run follows it")
	}
	b.wants("/runs/LONG/events?at=1001", `data-live="/runs/LONG/live?seen=1001"`)
}

func TestEventPages(t *testing.T) {
	log := store.Memory()
	record(t, log, "R", `{"city":"Oslo"}`)
	b := openView(t, viewOf(log, ""))
	events, err := log.Read(t.Context(), "R")
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		b.wants(fmt.Sprintf("/runs/R/events/%d", ev.Seq), ev.Hash().String(), ev.Kind.String())
		if _, body := b.get(fmt.Sprintf("/runs/R/raw/%d", ev.Seq)); !strings.Contains(body, `"hash":"`+ev.Hash().String()) {
			t.Errorf("raw event %d: %s", ev.Seq, body)
		}
	}
	for _, path := range []string{"/runs/R/events/0", "/runs/R/events/99", "/runs/R/events/-1", "/runs/R/events/x", "/runs/R/raw/99"} {
		if code, _ := b.get(path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestALongPayloadIsNotInATimeline has the text of two lines on the page of its
// event, and a payload beyond all bounds only as a file.
func TestALongPayloadIsNotInATimeline(t *testing.T) {
	log := store.Memory()
	appendEvent(t, log, "R", event.KindRunStarted, event.RunStarted{Goal: "g"})
	appendEvent(t, log, "R", event.KindUserMessageAppended, event.UserMessageAppended{Content: "one\ntwo" + strings.Repeat("x", 100_000)})
	appendEvent(t, log, "R", event.KindUserMessageAppended, event.UserMessageAppended{Content: strings.Repeat("y", 2<<20)})
	b := openView(t, viewOf(log, ""))
	if body := b.wants("/runs/R/events", "The payload is long."); len(body) > 40_000 {
		t.Errorf("the timeline has %d bytes", len(body))
	}
	b.wants("/runs/R/events/2", "<pre tabindex=\"0\">one\ntwo", "<h3>content</h3>")
	if body := b.wants("/runs/R/events/3", "too long to show"); len(body) > 40_000 {
		t.Errorf("the page has %d bytes", len(body))
	}
	if _, body := b.get("/runs/R/raw/3"); len(body) < 2<<20 {
		t.Errorf("the file has %d bytes", len(body))
	}
}

// TestInspectForeignRunsAreAbsent asks for runs of another namespace, and for
// nonexistent ones, in every possible way.
func TestInspectForeignRunsAreAbsent(t *testing.T) {
	log := store.Memory()
	record(t, log, "acme/1", `{"city":"Oslo"}`)
	record(t, log, "other/2", `{"city":"Secretville"}`)
	b := openView(t, viewOf(log, "acme"))
	form := url.Values{}
	_, absent := b.get("/runs/none")
	for _, id := range []string{"2", "other%2F2", "other/2", "..%2Fother%2F2", "acme%2F1", "1%2F..%2F..%2Fother%2F2", "%2Fother%2F2"} {
		for _, request := range asking(t, id, "1") {
			method, path, _ := strings.Cut(request, " ")
			ask := b.get
			if method == http.MethodPost {
				ask = func(path string) (int, string) { return b.post(path, form) }
			}
			if code, body := ask(path); code != http.StatusNotFound || body != absent {
				t.Errorf("%s of %s: %d, the body is another one: %t", request, id, code, body != absent)
			}
		}
	}
	if body := b.wants("/"); strings.Contains(body, "other") || strings.Contains(body, "acme") || strings.Count(body, "<tr data-row>") != 1 {
		t.Errorf("the list tells of others: %s", body)
	}
}

// asking returns the requests with which the owner of one run could ask for another,
// from the table of routes: a route without an entry here fails the test.
func asking(t *testing.T, id, own string) (requests []string) {
	t.Helper()
	fill := strings.NewReplacer("{run}", id, "{seq}", "1")
	for _, r := range inspect.Routes() {
		switch {
		case r.Open, r.Pattern == "GET /{$}", r.Pattern == "GET /live": // the test checks the content of the list, which live sends again
		case strings.Contains(r.Pattern, "/{run}"):
			requests = append(requests, fill.Replace(r.Pattern))
		case r.Pattern == "GET /diff":
			requests = append(requests, "GET /diff?a="+own+"&b="+id, "GET /diff?a="+id+"&b="+own)
		case r.Pattern == "GET /tools": // likewise, in TestToolPagesShowOwnRunsAlone
		case strings.Contains(r.Pattern, "{tool}"), strings.Contains(r.Pattern, "{digest}"):
			path := strings.NewReplacer("{tool}", url.PathEscape(id), "{digest}", moduleOne).Replace(r.Pattern)
			requests = append(requests, path+"?to="+moduleOne)
		case strings.Contains(r.Pattern, " /queue"), r.Pattern == "GET /usage": // which a view without an operator does not have
			requests = append(requests, strings.Replace(r.Pattern, "{what}", "cancel", 1)+"?tenant="+id)
		default:
			t.Errorf("nobody has said how %s keeps namespaces apart", r.Pattern)
		}
	}
	return requests
}

func TestVerdicts(t *testing.T) {
	log := store.Memory()
	record(t, log, "GOOD", `{"city":"Oslo"}`)
	appendEvent(t, log, "BAD", event.KindRunStarted, event.RunStarted{SchemaVersion: 99})
	long(t, log, "OPEN", 3)
	view := viewOf(log, "")
	diverged := &agent.Divergence{MismatchError: step.MismatchError{Seq: 3, Kind: event.KindToolCallFailed, ExpectedKind: event.KindSideEffectRecorded, Class: "payload",
		Field: "request", Expected: "GET /customers/41", Got: "GET /customers/42", Reason: "they differ"}}
	replays := view.Replayer
	view.Replayer = func(ctx context.Context, id string) (agent.Verdict, error) {
		switch id {
		case "OPEN":
			return agent.Verdict{Events: 3, Divergence: diverged}, nil
		case "BAD":
			return agent.Verdict{}, errors.New("its module is gone")
		}
		return replays(ctx, id)
	}
	view.Ended = func(_ context.Context, id string, d *agent.Divergence) []string {
		if id != "OPEN" || d != diverged {
			return nil
		}
		return []string{"at lookup (shop.go:41): call 7 at 0x1f", "at main (<b>.go:9)"}
	}
	b := openView(t, view)
	form := url.Values{}
	for path, words := range map[string][]string{
		"/runs/GOOD/validate": {"valid</span> All 5 events", "Merkle root"},
		"/runs/OPEN/validate": {"valid, open</span> All 3 events so far"},
		"/runs/BAD/validate":  {"newer</span> schema version 99", "D5", `href="/runs/BAD?at=1#at"`},
		"/runs/GOOD/replay":   {"identical</span> The replay produced the same 5 events"},
		"/runs/OPEN/replay":   {"diverged</span> they differ", "GET /customers/4<mark>1</mark>", "GET /customers/4<mark>2</mark>", "at lookup (shop.go:41): call 7 at 0x1f\nat main (&lt;b&gt;.go:9)</pre>", `href="/runs/OPEN?at=3#at"`},
		"/runs/BAD/replay":    {"not replayed</span> its module is gone", "was not executed again"},
	} {
		code, body := b.post(path, form)
		if code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
		for _, word := range words {
			if !strings.Contains(body, word) {
				t.Errorf("%s has no %q in %s", path, word, body)
			}
		}
		b.wants(path, words...) // the result has an address
	}
	b.wants("/runs/OPEN", `action="/runs/OPEN/replay"`)
	appendEvent(t, log, "OPEN", event.KindUserMessageAppended, event.UserMessageAppended{Content: "more"})
	b.wants("/runs/OPEN/replay", "<dt>since then</dt><dd>1 event</dd>")
	executed := 0
	view.Replayer = func(context.Context, string) (agent.Verdict, error) { executed++; return agent.Verdict{Events: 5}, nil }
	b = openView(t, view)
	if b.wants("/runs/GOOD/replay", "not known</span> This server has not executed the run again yet", ">Check now<"); executed > 0 {
		t.Error("a page that is read executes a run")
	}
	for i := range 300 { // more than are kept
		record(t, log, fmt.Sprintf("MORE%d", i), `{"city":"Oslo"}`)
		b.post(fmt.Sprintf("/runs/MORE%d/replay", i), form)
	}
	b.wants("/runs/MORE0/replay", "not known</span>")
	b.wants("/runs/MORE299/replay", "identical</span>")
	view.Replayer = nil
	b = openView(t, view)
	if body := b.wants("/runs/GOOD"); strings.Contains(body, "Replay") {
		t.Error("a button promises what cannot be")
	}
	if code, _ := b.get("/runs/GOOD/replay"); code != http.StatusNotFound {
		t.Errorf("the result of a replay without a replayer: %d", code)
	}
	if code, _ := b.post("/runs/GOOD/replay", url.Values{}); code != http.StatusNotFound {
		t.Errorf("replay without a replayer: %d", code)
	}
}

// TestWebViewTitleIsEscaped opens a run whose id has control characters that a browser
// would obey in a window's title.
func TestWebViewTitleIsEscaped(t *testing.T) {
	log := store.Memory()
	long(t, log, "a\u202eb\x1b", 1)
	body := openView(t, viewOf(log, "")).wants("/runs/" + url.PathEscape("a\u202eb\x1b"))
	if want := `<title>a\u202eb\x1b · starling</title>`; !strings.Contains(body, want) {
		t.Errorf("no %s in %s", want, body)
	}
}

// TestPagesSayThatTheHostIsBusy: a request that finds no memory or slot is asked to come back.
func TestPagesSayThatTheHostIsBusy(t *testing.T) {
	log := store.Memory()
	record(t, log, "R", `{"city":"Oslo"}`)
	view := viewOf(log, "")
	view.Replayer = func(context.Context, string) (agent.Verdict, error) { return agent.Verdict{}, share.ErrBusy }
	view.Checker = func(context.Context, string) (eventlog.Report, error) { return eventlog.Report{}, share.ErrBusy }
	b := open(t, inspect.Config{Scope: inspect.Only(view, "")})
	for _, what := range []string{"replay", "validate"} {
		if code, _ := b.post("/runs/R/"+what, url.Values{}); code != http.StatusTooManyRequests {
			t.Errorf("%s: %d", what, code)
		}
	}
}

func TestDiff(t *testing.T) {
	log := store.Memory()
	record(t, log, "A", `{"city":"Oslo"}`)
	record(t, log, "B", `{"city":"Bergen"}`)
	long(t, log, "C", 700)
	b := openView(t, viewOf(log, ""))
	b.wants("/diff", "Choose two runs", `<option value="A"`)
	b.wants("/diff?a=A&b=A", "the same</span> 5 events match")
	b.wants("/diff?a=A&b=B", "The first difference is in call #1 weather, event 2.", "args.city", "<span>Oslo</span><span>Bergen</span>", `<option value="A" selected>`)
	b.wants("/diff?a=A&b=C", "B</b> 699", "not in A", `rel="next"`)
	b.wants("/diff?a=C&b=C&all=1&from=650", `<span class="seq">700<br>700</span>`)
	if code, _ := b.get("/diff?a=A&b=NONE"); code != http.StatusNotFound {
		t.Errorf("a run that there is not: %d", code)
	}
}

// TestLive follows a run that grows, is cut off, and continues after the last event that it has seen.
func TestLive(t *testing.T) {
	log := store.Memory()
	long(t, log, "R", 3)
	b := openView(t, viewOf(log, ""))
	lines, stop := b.follow("/runs/R/live?seen=2")
	next(t, lines)
	stop()
	lines, stop = b.follow("/runs/R/live?seen=3")
	appendEvent(t, log, "R", event.KindRunFailed, event.RunFailed{ErrorType: "tool", Error: "no"})
	next(t, lines)
	stop()
	if code, _ := b.get("/runs/R/live?seen=4"); code != http.StatusNoContent {
		t.Errorf("a run that has ended is followed: %d", code)
	}
}

// follow opens a stream of events.
func (b *browser) follow(path string) (*bufio.Scanner, func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		b.t.Fatalf("%s is %s", path, got)
	}
	return bufio.NewScanner(resp.Body), func() { cancel(); resp.Body.Close() }
}

// next waits for a change.
func next(t *testing.T, lines *bufio.Scanner) {
	t.Helper()
	for lines.Scan() {
		if lines.Text() == "data: changed" {
			return
		}
	}
	t.Fatalf("the stream has ended: %v", lines.Err())
}

// TestFollowingPagesAreBounded: a page follows a run as long as the view lets it.
func TestFollowingPagesAreBounded(t *testing.T) {
	log := store.Memory()
	long(t, log, "R", 3)
	view, places := viewOf(log, ""), make(chan bool, 1)
	view.Follow = func(context.Context) (func(), error) {
		select {
		case places <- true:
			return func() { <-places }, nil
		default:
			return nil, share.ErrBusy
		}
	}
	b := open(t, inspect.Config{Scope: inspect.Only(view, "")})
	_, stop := b.follow("/runs/R/live")
	if code, _ := b.get("/runs/R/live"); code != http.StatusTooManyRequests {
		t.Errorf("a second page follows: %d", code)
	}
	stop()
	places <- true // once the first one has left
}

func TestFailuresAreTold(t *testing.T) {
	b := open(t, inspect.Config{Scope: func(*http.Request) (eventview.View, error) {
		return eventview.View{}, errors.New("the disk is on fire")
	}})
	code, body := b.get("/")
	if code != http.StatusInternalServerError || strings.Contains(body, "fire") {
		t.Errorf("got %d, %s", code, body)
	}
	log := store.Memory()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if code, _ := openView(t, viewOf(log, "")).get("/"); code != http.StatusInternalServerError {
		t.Errorf("a closed log: %d", code)
	}
}

// damaged is a log whose run cannot be read beyond its second event.
type damaged struct{ *store.MemoryLog }

func (d damaged) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for ev, err := range d.MemoryLog.Events(ctx, id, after) {
			if ev.Seq > 2 {
				yield(event.Event{}, &eventlog.CorruptError{RunID: id, Seq: ev.Seq, Invariant: "storage", Reason: "column kind holds <b>"})
				return
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// altered is a log whose last events are others after some time.
type altered struct {
	*store.MemoryLog
	now atomic.Bool
}

func (a *altered) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for ev, err := range a.MemoryLog.Events(ctx, id, after) {
			if a.now.Load() && ev.Seq > 4 {
				ev.Timestamp++
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestACheckIsOfWhatItRead: a page does not say that a run is unchanged which was changed after its
// check.
func TestACheckIsOfWhatItRead(t *testing.T) {
	log := &altered{MemoryLog: store.Memory()}
	long(t, log.MemoryLog, "R", 5)
	b := openView(t, viewOf(log, ""))
	if code, body := b.post("/runs/R/validate", url.Values{}); code != http.StatusOK || !strings.Contains(body, "All 5 events so far were unchanged.") {
		t.Fatalf("%d %s", code, body)
	}
	appendEvent(t, log.MemoryLog, "R", event.KindUserMessageAppended, event.UserMessageAppended{Content: "again"})
	b.wants("/runs/R/validate", "were unchanged.", "<dt>since then</dt><dd>1 event</dd>")
	log.now.Store(true)
	if body := b.wants("/runs/R/validate", "The run was changed after the last check."); strings.Contains(body, "were unchanged") {
		t.Error("a changed run is unchanged")
	}
}

// TestADamagedRunIsShownAsFarAsItGoes leaves the way to its validation open.
func TestADamagedRunIsShownAsFarAsItGoes(t *testing.T) {
	log := store.Memory()
	long(t, log, "R", 5)
	b := openView(t, viewOf(damaged{log}, ""))
	b.wants("/runs/R/events", `<li id="e2"`, "column kind holds &lt;b&gt;", `action="/runs/R/validate"`)
	if code, body := b.post("/runs/R/validate", url.Values{}); code != http.StatusOK || !strings.Contains(body, "invalid</span>") {
		t.Errorf("validation: %d, %s", code, body)
	}
}

// TestErrorsKeepTheNavigationOfAnOperator: an operator who follows a dead link finds the way
// back to the queue.
func TestErrorsKeepTheNavigationOfAnOperator(t *testing.T) {
	v := viewOf(store.Memory(), "")
	v.Operator = &eventview.Operator{}
	b := openView(t, v)
	if code, body := b.get("/runs/none"); code != http.StatusNotFound || !strings.Contains(body, `href="/queue"`) {
		t.Errorf("%d without the queue: %s", code, body)
	}
}
