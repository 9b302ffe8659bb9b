package inspect_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// withForms serves a view, and at /press/PATH the result of pressing the button of a
// form, for a browser without a user.
func withForms(t *testing.T, view eventview.View) http.Handler {
	t.Helper()
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(view, "")})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("/press/", func(w http.ResponseWriter, r *http.Request) {
		path, method := strings.TrimPrefix(r.URL.RequestURI(), "/press"), http.MethodPost
		for {
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, httptest.NewRequest(method, "http://"+r.Host+path, nil))
			if to := answer.Header().Get("Location"); to != "" {
				path, method = to, http.MethodGet
			} else if !strings.Contains(answer.Body.String(), `value="cancel"`) { // it has ended
				if !strings.Contains(path, "?") && r.URL.RawQuery != "" { // a part of the result
					path += "?" + r.URL.RawQuery
				}
				http.Redirect(w, r, path, http.StatusSeeOther)
				return
			}
		}
	})
	return mux
}

// busyQueue returns a queue with a run in every state, a working host and a drained one.
func busyQueue(t *testing.T) *queue.Queue {
	t.Helper()
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "queue.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	t.Cleanup(func() { stop(); working.Wait(); log.Close() })
	limits := func(tenant string) queue.Limits { return queue.Limits{Paused: tenant == "beta"} }
	var queues []*queue.Queue
	for _, host := range []string{"host2", "host1"} {
		q, err := queue.Open(ctx, log, queue.Config{Host: host, Version: "v1.4.0", Limits: limits, Poll: time.Millisecond, Grace: -1})
		if err != nil {
			t.Fatal(err)
		}
		queues = append(queues, q)
		working.Go(func() {
			_ = q.Work(ctx, func(ctx context.Context, l queue.Lease) error {
				if strings.HasSuffix(l.RunID, "S") {
					return &queue.HostError{Class: "keys", Err: errors.New(hostile[0])}
				}
				<-ctx.Done()
				return ctx.Err()
			})
		})
		if host == "host2" {
			for q.Drain(ctx, host, true) != nil { // it does not work yet
				time.Sleep(time.Millisecond)
			}
			for !q.Draining() {
				time.Sleep(time.Millisecond)
			}
		}
	}
	q := queues[1]
	for _, id := range []string{"acme/01M7YVXB018EN80T6T0GRJB4DR", "acme/01M7YVXB018EN80T6T0GRJB4DS", "beta/01M7YVXB018EN80T6T0GRJB4DW"} {
		if err := q.Enqueue(ctx, queue.Job{RunID: id, Tenant: id[:4]}, nil); err != nil {
			t.Fatal(err)
		}
	}
	// It has failed so often that it sleeps for minutes.
	for i := 0; ; i++ {
		list, err := q.List(ctx, queue.Filter{})
		if err != nil || i > 60_000 {
			t.Fatal(list, err)
		}
		s := list[1]
		if s.HostFailures >= 9 && s.State == queue.Sleeping && list[0].State == queue.Running {
			return q
		}
		_ = q.Retry(ctx, s.RunID) // unless it runs
		time.Sleep(time.Millisecond)
	}
}

// operatorOf views a queue and steers it.
func operatorOf(q *queue.Queue) *eventview.Operator {
	return &eventview.Operator{Queue: q, Steer: func(ctx context.Context, what, of string) error {
		switch what {
		case "cancel":
			return q.Cancel(ctx, of)
		case "retry":
			return q.Retry(ctx, of)
		}
		return q.Drain(ctx, of, what == "drain")
	}}
}

// gallery is a log with something to see.
func gallery(t *testing.T) *store.MemoryLog {
	t.Helper()
	log := store.Memory()
	long(t, log, "01M7YVXB018EN80T6T0GRJB4D9", 4312)
	appendEvent(t, log, "01M7YVXB018EN80T6T0GRJB4D9", event.KindTurnStarted, event.TurnStarted{TurnID: "t"})
	appendEvent(t, log, "01M7YVXB018EN80T6T0GRJB4D9", event.KindAssistantMessageCompleted, event.AssistantMessageCompleted{TurnID: "t", InputTokens: 12_345, OutputTokens: 678, CostUSD: 0.42})
	record(t, log, "01M7YVXBKAPRA01FTH0YHGNV7T", `{"city":"Oslo"}`)
	record(t, log, "01M7YVXBTWAQ18W89FYG35WEMQ", `{"city":"Bergen"}`)
	record(t, log, "01M7YVXC31FJQDHHQ422T2TSBM", `{}`)
	rates(t, log, "")
	recordUse(t, log, "SLOW", "slow", moduleTwo[:62]+"00", 200, 1000)
	appendEvent(t, log, "HOSTILE", event.KindRunStarted, event.RunStarted{Goal: `<img src=x onerror="document.title='owned'">`, ModelID: hostile[0]})
	appendEvent(t, log, "HOSTILE", event.KindUserMessageAppended, event.UserMessageAppended{Content: strings.Join(hostile, "\n")})
	appendEvent(t, log, "HOSTILE", event.KindRunFailed, event.RunFailed{ErrorType: "tool", Error: hostile[0]}) // a page that follows a run is never loaded
	incident(t, log, "INCIDENT", 1_770_000_000_000_000_000)
	incident(t, log, "INCIDENT2", 1_770_000_900_000_000_000)
	busy(t, log, "BUSY", 2000)
	return log
}

// galleryView shows the gallery. A replay of one run diverges.
func galleryView(t *testing.T) eventview.View {
	t.Helper()
	view := viewOf(gallery(t), "")
	view = executing(view)
	view.Operator = operatorOf(busyQueue(t))
	view.Usage = func(_ context.Context, f tenant.UsageFilter) (tenant.UsageList, error) {
		used := tenant.Usage{Tenant: "acme", Modules: 3, ModuleBytes: 11 << 20, Limits: tenant.DefaultLimits(), Days: []tenant.DayUsage{
			{Day: "2026-03-02", Runs: 1204, Fuel: 918_273_645_546, Effects: 5120, EgressBytes: 7 << 20, RecordedBytes: 19 << 20},
			{Day: "2026-02-28", Runs: 3, Fuel: 40_112, Effects: 6, RecordedBytes: 2210},
		}}
		if f.Tenant != "" {
			used.Limits.Recorded, used.Recorded = -1, &tenant.Recorded{Bytes: 3 << 30, Today: 19 << 20}
			return tenant.UsageList{Items: []tenant.Usage{used}}, nil
		}
		return tenant.UsageList{Items: []tenant.Usage{used, {Tenant: hostile[0], Limits: tenant.DefaultLimits()}}, Next: "beta"}, nil
	}
	view.Jobs = func(context.Context, ...string) (map[string]queue.Status, error) {
		return map[string]queue.Status{"01M7YVXB018EN80T6T0GRJB4D9": {Host: "host1", Progress: queue.Progress{State: queue.Running, Attempt: 2, MaxAttempts: 5, LastError: &queue.LastError{Class: "database", Message: hostile[0]}}}}, nil
	}
	replays := view.Replayer
	view.Replayer = func(ctx context.Context, id string) (agent.Verdict, error) {
		if id == "01M7YVXC31FJQDHHQ422T2TSBM" {
			return agent.Verdict{Events: 5, Divergence: &agent.Divergence{MismatchError: step.MismatchError{
				Seq: 4, Kind: event.KindSideEffectRecorded, ExpectedKind: event.KindSideEffectRecorded, Class: "payload", Field: "request",
				Expected: "GET http://127.0.0.1/customers/41", Got: "GET http://127.0.0.1/customers/42", Reason: "the request is another one",
			}}}, nil
		}
		return replays(ctx, id)
	}
	return view
}

// galleryPages are the pages of the gallery, by name.
var galleryPages = map[string]string{
	"runs": "/", "found": "/?q=state:failed", "wrong": "/?q=x+state:faild", "timeline": "/runs/01M7YVXBKAPRA01FTH0YHGNV7T/events?at=2#e2", "long": "/runs/01M7YVXB018EN80T6T0GRJB4D9/events?at=801", "event": "/runs/01M7YVXBKAPRA01FTH0YHGNV7T/events/1",
	"valid": "/press/runs/01M7YVXBKAPRA01FTH0YHGNV7T/validate", "diverged": "/press/runs/01M7YVXC31FJQDHHQ422T2TSBM/replay", "hostile": "/runs/HOSTILE/events#e2", "incident": "/runs/INCIDENT", "selected": "/runs/INCIDENT?at=14", "selected-call": "/runs/INCIDENT?at=22", "incident-events": "/runs/INCIDENT/events", "requests": "/runs/INCIDENT/requests?at=17", "conversation": "/runs/INCIDENT/conversation", "busy": "/runs/BUSY", "critical": "/runs/INCIDENT?only=path&from=1000000000&to=10840000000&at=22", "compared": "/diff?a=INCIDENT&b=BUSY", "silent": "/runs/01M7YVXB018EN80T6T0GRJB4D9",
	"diff": "/diff?all=1&a=01M7YVXBKAPRA01FTH0YHGNV7T&b=01M7YVXBTWAQ18W89FYG35WEMQ", "absent": "/runs/none", "signin": "/sign-in", "choose": "/diff", "queue": "/queue", "usage": "/usage", "waterfall": "/runs/01M7YVXBKAPRA01FTH0YHGNV7T?at=2", "acme": "/usage?tenant=acme", "sleeping": "/queue?state=sleeping",
	"fuel-not-executed": "/runs/RATES03/fuel", "fuel": "/press/runs/RATES04/fuel", "fuel-inside": "/press/runs/RATES04/fuel?in=0", "nothing": "/?q=nosuchword", "tools": "/tools", "tool": "/tools/rates", "change": "/press/tools/rates/change?to=" + moduleTwo,
}

// TestWebViewInABrowser loads the pages in a real browser and checks the result after their
// scripts have run under the policy.
func TestWebViewInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	c := newChromium(t, withForms(t, galleryView(t)))
	const oslo = "/runs/01M7YVXBKAPRA01FTH0YHGNV7T"

	c.shows("/", "01M7YVXBKAPRA01FTH0YHGNV7T", "21 of 21", "<b>tokens in</b> 14,891", "<b>cost</b> $0.43", `id="keys-button">`) // the script has run: the button exists
	c.shows(oslo+"/events", "RunStarted", "mild in Oslo", `<span class="call">#1 weather</span>`)
	c.shows(oslo+"/events/2", `<span class="j-key">"city"</span>`, `<span class="j-string">"Oslo"</span>`)
	c.shows(oslo, `<h1>weather <span class="state good">completed</span> <small>{"city":"Oslo"}</small></h1>`, `<dt>calls</dt><dd>1</dd>`, `<tr data-row="">`, `<rect class="b-call" x="`, `aria-current="page">Waterfall</a>`)
	c.shows(oslo+"?at=2", `<tr data-row="" id="at" class="current">`, `<span class="j-string">"Oslo"</span>`)
	c.shows("/press"+oslo+"/validate", "All 5 events were unchanged.")
	c.shows("/diff?a=01M7YVXBKAPRA01FTH0YHGNV7T&b=01M7YVXBTWAQ18W89FYG35WEMQ", "The first difference is in call #1 weather, event 2.")
	c.shows("/runs/01M7YVXB018EN80T6T0GRJB4D9/events?at=777", `<li id="e777" data-row="" class="current">`)
	c.shows("/", "running on host1, attempt 2 of 5, last error database: ")
	c.shows("/queue", ">host1<", ">working</span>", ">drained</span>", ">waiting</span>", ">sleeping</span>", ">in ", "keys: ", "beta (suspended) 1", ">Drain</button>", ">Resume</button>", ">Cancel</summary>", ">Retry</button>")
	if dom := c.shows("/queue?state=sleeping&tenant=acme", ">sleeping</span>"); strings.Contains(dom, ">waiting</span>") {
		t.Error("runs that wait are shown among those that sleep")
	}
	c.shows("/usage", ">acme</a>", ">2026-03-02<", ">1,204<", ">918,273,645,546<", "3, 11MiB of 512MiB", "No run ended on these days.", "/usage?after=beta")
	c.shows("/usage?tenant=acme", "19MiB of 1GiB", "3GiB, no bound", ">all tenants</a>")
	for _, path := range []string{"/", "/queue", "/usage", "/runs/HOSTILE", "/runs/HOSTILE/events", "/runs/HOSTILE/conversation", "/runs/HOSTILE?at=2", "/runs/HOSTILE/events/2", "/diff?a=HOSTILE&b=HOSTILE"} {
		if dom := c.shows(path); strings.Contains(dom, "owned</title>") || strings.Contains(dom, "<img") {
			t.Errorf("%s: a text became an element", path)
		}
	}
	// Every page is loaded in each look by TestPagesFitTheirWindow and TestPagesAreAccessible, so by day one
	// picture is enough, unless somebody wants to see them.
	all := os.Getenv(screenshots) != "" || os.Getenv("STARLING_NIGHTLY") != ""
	for name, path := range galleryPages {
		if all || name == "incident" {
			c.photograph(name, path)
		}
	}
}

// TestWebViewFollowsARunByBrowser appends to a run while a browser looks at it.
func TestWebViewFollowsARunByBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	log := store.Memory()
	long(t, log, "R", 3)
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(viewOf(log, ""), "")})
	if err != nil {
		t.Fatal(err)
	}
	var appending sync.Once
	follows := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/live") {
			appending.Do(func() {
				appendEvent(t, log, "R", event.KindUserMessageAppended, event.UserMessageAppended{Content: "<b>while you watch</b>"})
				appendEvent(t, log, "R", event.KindRunFailed, event.RunFailed{ErrorType: "tool", Error: "the end"})
			})
		}
		s.ServeHTTP(w, r)
	})
	c := newChromium(t, follows)
	dom := c.shows("/runs/R/events", `<li id="e4" data-row="" class="fresh">`, "&lt;b&gt;while you watch&lt;/b&gt;", `<li id="e5"`, `<span class="state bad">failed</span>`, "the end</pre>")
	if strings.Count(dom, `id="e4"`) != 1 || strings.Contains(dom, `id="live"`) {
		t.Errorf("it is still followed, or event 4 is there twice: %s", dom)
	}
}

// TestWebViewSignInByBrowser opens the address that the program prints.
func TestWebViewSignInByBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(viewOf(gallery(t), ""), "the token"), Prefix: "/inspect"})
	if err != nil {
		t.Fatal(err)
	}
	c := newChromium(t, s)
	c.shows("/inspect/sign-in#"+url.PathEscape("the token"), "01M7YVXBKAPRA01FTH0YHGNV7T", "Sign out")
	c.call("Network.clearBrowserCookies", nil, nil)
	c.open("/inspect/sign-in#wrong")
	c.until(`document.body.innerText.includes("The token is not valid")`)
	if strings.Contains(c.dom(), "01M7YV") {
		t.Error("a wrong token opens something")
	}
}

// TestARunByClicks goes the ways of somebody who looks for the cause of a failure.
func TestARunByClicks(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	view := galleryView(t)
	view.Database = "starling.db"
	c := newChromium(t, withForms(t, view))
	shown := func(where string, words ...string) {
		t.Helper()
		var text string
		c.eval("document.body.textContent", &text)
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s shows no %q in %s", where, word, text)
			}
		}
	}
	press := func(key string) (path string) {
		t.Helper()
		c.loading(func() {
			for _, what := range []string{"keyDown", "keyUp"} {
				c.call("Input.dispatchKeyEvent", map[string]any{"type": what, "key": key, "text": key}, nil)
			}
		})
		c.eval("location.pathname + location.search", &path)
		return path
	}
	goes := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("it leads to %s, want %s", got, want)
		}
		if c.console != "" {
			t.Errorf("%s: the browser says: %s", got, c.console)
		}
	}
	// The cause of a failure, in every view.
	c.open("/runs/INCIDENT")
	goes(c.follow(".failure a"), "/runs/INCIDENT?at=22")
	shown("the call", "#3 fetch, attempt 3", "retry later", "starling-host debug starling.db INCIDENT --at 24")
	goes(c.follow(`.views a[href*="requests"]`), "/runs/INCIDENT/requests?at=22")
	goes(c.follow("tr:last-child a[data-open]"), "/runs/INCIDENT/requests?at=23")
	shown("the request", "HTTP/1.1 503 Service Unavailable", `"error": "upstream said 503"`, "allowed by rule 2, line 14")
	goes(c.follow(`.views a[href*="events"]`), "/runs/INCIDENT/events?at=23")
	c.until(`document.querySelector("#e23.current details").open`)
	goes(c.follow(`.views a[href*="conversation"]`), "/runs/INCIDENT/conversation?at=23")
	shown("the conversation", "You dispatch parcels.", "I look at the address")
	// The keys.
	c.open("/runs/INCIDENT")
	goes(press("f"), "/runs/INCIDENT?at=6")
	goes(press("f"), "/runs/INCIDENT?at=14")
	goes(press("]"), "/runs/INCIDENT?at=14&from=0&to=5420000000")
	goes(press("["), "/runs/INCIDENT?at=14")
	goes(c.follow(".pills a:nth-child(3)"), "/runs/INCIDENT?at=14&only=path")
	goes(c.follow(".strip a:last-of-type"), "/runs/INCIDENT?at=14&from=1072361703&only=path&to=10840000000")
	goes(press("o"), "/runs/INCIDENT/events?at=14")
	// Verdicts in place, at an address.
	c.open("/runs/01M7YVXC31FJQDHHQ422T2TSBM")
	goes(c.follow(`button[data-busy="Replaying…"]`), "/runs/01M7YVXC31FJQDHHQ422T2TSBM/replay")
	shown("the verdict", "diverged", "Recorded", "Reproduced", "Waterfall")
	c.open("/runs/01M7YVXC31FJQDHHQ422T2TSBM/replay")
	shown("the address of the verdict", "diverged", "Check again")
	goes(c.follow("#verdict dd a"), "/runs/01M7YVXC31FJQDHHQ422T2TSBM?at=4")
	// Two runs.
	c.open("/runs/INCIDENT")
	goes(c.follow(`.actions a[href*="diff"]`), "/diff?a=INCIDENT")
	c.eval(`document.querySelector("select[name=b]").value = "INCIDENT2"`, nil)
	goes(c.follow("button.primary"), "/diff?a=INCIDENT&b=INCIDENT2")
	shown("the comparison", "the same", "25 events match.")
	// Without scripts.
	c.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	c.open("/runs/INCIDENT?at=17#at")
	goes(c.follow(".panel .actions a:last-child"), "/runs/INCIDENT")
}
