package inspect_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
)

// The digests of two versions of a tool.
var (
	moduleOne = strings.Repeat("1a", 32)
	moduleTwo = strings.Repeat("2b", 32)

	modulePython = strings.Repeat("3c", 32)
)

// recordUse appends a run of a call of a module's tool, with a request.
func recordUse(t testing.TB, log *store.MemoryLog, id, tool, module string, status int, fuel uint64) {
	t.Helper()
	digest, err := hex.DecodeString(module)
	if err != nil {
		t.Fatal(err)
	}
	appendEvent(t, log, id, event.KindRunStarted, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: tool, ToolSchemas: []event.ToolSchemaRef{{Name: tool, Sandbox: &event.Sandbox{Module: digest}}}})
	appendEvent(t, log, id, event.KindToolCallScheduled, event.ToolCallScheduled{CallID: "c", ToolName: tool, Attempt: 1})
	exchange, err := canon.Marshal(event.Exchange{Response: fmt.Appendf(nil, "HTTP/1.1 %d x\r\n\r\n", status)})
	if err != nil {
		t.Fatal(err)
	}
	appendEvent(t, log, id, event.KindSideEffectRecorded, event.SideEffectRecorded{
		Name: "GET http://rates.example/eur", CallID: "c", Request: []byte("GET http://rates.example/eur HTTP/1.1\r\nHost: rates.example\r\n\r\n"), Value: exchange, Fuel: fuel / 2,
	})
	if status < 500 {
		appendEvent(t, log, id, event.KindToolCallCompleted, event.ToolCallCompleted{CallID: "c", Attempt: 1, Meter: event.Meter{Fuel: fuel}})
		appendEvent(t, log, id, event.KindRunCompleted, event.RunCompleted{})
		return
	}
	appendEvent(t, log, id, event.KindToolCallFailed, event.ToolCallFailed{CallID: "c", Attempt: 1, ErrorType: "tool", Error: fmt.Sprintf("answered %d %s", status, hostile[0]), Final: true, Meter: event.Meter{Fuel: fuel}})
	appendEvent(t, log, id, event.KindRunFailed, event.RunFailed{ErrorType: "tool", Error: "it failed"})
}

// oneModule has the same module for every digest.
type oneModule struct{}

func (oneModule) Module(context.Context, canon.Hash) ([]byte, error) { return []byte("a module"), nil }

// executing is a view whose runs are executed by a script: functions 1 and 2 of the tool rates spend
// what is recorded, and version two asks for something else. A replay of SLOW waits until it is cancelled.
func executing(view eventview.View) eventview.View {
	functions := []string{"host.http", "main.run", hostile[0], "main.never"}
	view.Modules = oneModule{}
	view.Executor = func(ctx context.Context, o eventview.Execution) (eventview.Executor, error) {
		return eventview.Executor{Close: func() {}, Replay: func(ctx context.Context, runID string) (agent.Verdict, error) {
			if strings.HasSuffix(runID, "SLOW") {
				<-ctx.Done()
				return agent.Verdict{}, ctx.Err()
			}
			if strings.HasSuffix(runID, "NOTOOL") {
				return agent.Verdict{}, errors.New(`replay: tool "rates" of run NOTOOL: recorded: the module has no tool "rates"`)
			}
			if strings.HasSuffix(runID, "GONE") {
				return agent.Verdict{}, errors.New("its module is gone")
			}
			if o.Source != nil {
				language := ""
				if strings.HasSuffix(runID, "PYTHON-SCRIPT") {
					language = "Python"
				}
				s := o.Source("rates")
				s.Module(len(functions), language, "")
				for i, name := range functions {
					s.Function(uint32(i), name)
				}
			}
			if o.Profile != nil {
				c := o.Profile("rates")
				c.Enter(1, 0)
				c.Enter(2, 100)
				c.EnterImport("starling:v1.http", 600)
				c.Leave(700)
				c.Leave(900)
				if strings.HasSuffix(runID, "SCRIPT") {
					c.End(900)
					c = o.Profile("rates")
					c.Line(1, "execute", "tool.js", 3, 10)
					c.Line(2, hostile[0], "tool.js", 7, 110)
					c.Line(1, "execute", "tool.js", 3, 700)
				}
				end := uint64(1000)
				for strings.HasSuffix(runID, "MANY") && end < 21_000 { // functions of a unit each
					c.Enter(uint32(end), end)
					end++
					c.Leave(end)
				}
				c.End(end)
			}
			if o.Module == moduleTwo {
				return agent.Verdict{Events: 3, Divergence: &agent.Divergence{MismatchError: step.MismatchError{
					Seq: 3, Kind: event.KindSideEffectRecorded, ExpectedKind: event.KindSideEffectRecorded, Expected: "GET /eur", Got: "GET /usd", Reason: "the request is another one"}}}, nil
			}
			return agent.Verdict{Events: 5}, nil
		}}, nil
	}
	return view
}

// rates is a log in which a tool was used in two versions.
func rates(t testing.TB, log *store.MemoryLog, namespace string) {
	for i := range 12 {
		module, status := moduleOne, 200
		if i > 7 {
			module, status = moduleTwo, []int{200, 404, 503}[i%3]
		}
		recordUse(t, log, fmt.Sprintf("%sRATES%02d", namespace, i), "rates", module, status, uint64(1000+i*i*100))
	}
}

func TestFlameOfARun(t *testing.T) {
	log := store.Memory()
	recordUse(t, log, "R", "rates", moduleOne, 200, 1000)
	recordUse(t, log, "GONE", "rates", moduleOne, 200, 1000)
	b := openView(t, executing(viewOf(log, "")))
	if body := b.wants("/runs/R/fuel", ">Execute</button>", `aria-current="page">Fuel`); strings.Contains(body, "<svg x=") {
		t.Error("there is a graph before anything was executed")
	}
	finish(b, "/runs/R/fuel", nil)
	b.wants("/runs/R/fuel", `aria-label="run: 1k of fuel, 100.0%"`, `aria-label="rates: 1k`, `x="0.000%" y="38" width="100.000%"`, `aria-label="main.run: 1k`,
		`x="0.000%" y="57" width="80.000%"`, `aria-label="starling:v1.http: 100 of fuel, 10.0%"`, `class="fl-host"`, `<td class="number">700</td><td class="number">70.0%</td>`)
	b.wants("/runs/R/fuel?in=0.0.0", `href="/runs/R/fuel?in=0.0">main.run</a>`, `y="0" width="100.000%"`, "by itself</b> 700", `href="/runs/R?at=2#at"`)
	for _, at := range []string{"9", "0.0.0.0.0.0.0", "-1", "0..0", strings.Repeat("0.", 9000), "18446744073709551616"} {
		b.wants("/runs/R/fuel?in="+at, "<svg x=")
	}
	recordUse(t, log, "SCRIPT", "rates", moduleOne, 200, 1000)
	finish(b, "/runs/SCRIPT/fuel", nil)
	b.wants("/runs/SCRIPT/fuel", `aria-label="execute: 990 of fuel, `, `aria-label="(interpreter: start and library): 10 of fuel, `, `(interpreter: start and library)</a></td><td class="number">10</td><td class="number">0.5%`,
		`tool.js:3 <span class="note">execute</span></td><td class="number">400</td><td class="number">reached</td>`, `tool.js:7`, "how often a line was executed is not known", "The fuel of a line of JavaScript is approximate")
	recordUse(t, log, "PYTHON-SCRIPT", "rates", modulePython, 200, 1000)
	finish(b, "/runs/PYTHON-SCRIPT/fuel", nil)
	if body := b.wants("/runs/PYTHON-SCRIPT/fuel", `<td class="number">400</td><td class="number">1</td>`, "A line of Python counts as executed when"); strings.Contains(body, "JavaScript") {
		t.Error("the notes on Python speak of JavaScript")
	}
	recordUse(t, log, "MANY", "rates", moduleOne, 200, 1000)
	finish(b, "/runs/MANY/fuel", nil)
	b.wants("/runs/MANY/fuel", "Smaller or deeper functions are not drawn.", `20000 smaller functions, counted wherever they were called</td><td class="number">20k`)
	finish(b, "/runs/GONE/fuel", nil)
	b.wants("/runs/GONE/fuel", "its module is gone", ">Execute again</button>")
}

// finish presses the button of a task, and waits for its end.
func finish(b *browser, path string, form url.Values) {
	b.t.Helper()
	code, body := b.post(path, form)
	for code == http.StatusOK && strings.Contains(body, `value="cancel"`) {
		code, body = b.get(path)
	}
	if code != http.StatusOK {
		b.t.Fatalf("%s: %d", path, code)
	}
}

// TestTasksAreBounded cancels an execution by its button and by the end of the server, and begins
// more than may run at once.
func TestTasksAreBounded(t *testing.T) {
	log := store.Memory()
	for _, id := range []string{"1SLOW", "2SLOW", "3SLOW"} {
		recordUse(t, log, id, "rates", moduleOne, 200, 1000)
	}
	b := openView(t, executing(viewOf(log, "")))
	for _, id := range []string{"1SLOW", "2SLOW"} {
		if _, body := b.post("/runs/"+id+"/fuel", nil); !strings.Contains(body, ">Cancel</button>") {
			t.Fatalf("it cannot be cancelled: %s", body)
		}
	}
	if code, _ := b.post("/runs/3SLOW/fuel", nil); code != http.StatusTooManyRequests {
		t.Errorf("a third one: %d", code)
	}
	if _, body := b.post("/runs/1SLOW/fuel", url.Values{"what": {"cancel"}}); !strings.Contains(body, "Cancelled.") {
		t.Errorf("it is not cancelled: %s", body)
	}
	if code, _ := b.post("/runs/3SLOW/fuel", nil); code != http.StatusOK {
		t.Errorf("after the end of the first: %d", code)
	}
	for _, id := range []string{"2SLOW", "3SLOW"} {
		b.post("/runs/"+id+"/fuel", url.Values{"what": {"cancel"}})
	}
}

// counting is a log that counts the events that are read.
type counting struct {
	*store.MemoryLog
	read atomic.Int64
}

func (c *counting) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for ev, err := range c.MemoryLog.Events(ctx, id, after) {
			if c.read.Add(1); !yield(ev, err) {
				return
			}
		}
	}
}

// TestProgressOfALongRunReadsNothingOfIt: the page loads each second, and its Cancel must be in reach.
func TestProgressOfALongRunReadsNothingOfIt(t *testing.T) {
	log := &counting{MemoryLog: store.Memory()}
	long(t, log.MemoryLog, "SLOW", 6000)
	appendEvent(t, log.MemoryLog, "SLOW", event.KindToolCallScheduled, event.ToolCallScheduled{CallID: "c", ToolName: "rates", Attempt: 1})
	appendEvent(t, log.MemoryLog, "SLOW", event.KindToolCallCompleted, event.ToolCallCompleted{CallID: "c", Attempt: 1, Meter: event.Meter{Fuel: 1000}})
	b := openView(t, executing(viewOf(log, "")))
	path := "/runs/SLOW/fuel"
	if code, _ := b.post(path, nil); code != http.StatusOK {
		t.Fatal(code)
	}
	for body := ""; !strings.Contains(body, "Executed 0 of"); { // until the task has read the run
		_, body = b.get(path)
	}
	b.wants(path, ">Cancel</button>", `aria-current="page">Fuel`)
	if n := log.read.Load(); n > 7000 { // by the execution
		t.Errorf("%d events are read", n)
	}
	_, body := b.post(path, url.Values{"what": {"cancel"}})
	if !strings.Contains(body, "Cancelled.") || !strings.Contains(body, "<dt>duration</dt>") {
		t.Errorf("after the end the run is not shown: %s", body)
	}
}

// TestTasksLeaveRoomForOtherTenants: those that have more than one take at most half.
func TestTasksLeaveRoomForOtherTenants(t *testing.T) {
	log := store.Memory()
	for _, tenant := range []string{"a", "b", "c", "d", "e", "f"} {
		for _, id := range []string{"/1SLOW", "/2SLOW", "/3SLOW"} {
			recordUse(t, log, tenant+id, "rates", moduleOne, 200, 1000)
		}
	}
	s, err := inspect.New(inspect.Config{Scope: func(r *http.Request) (eventview.View, error) {
		return executing(viewOf(log, r.Header.Get("Tenant"))), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	post := func(tenant, id, what string) int {
		r := httptest.NewRequest(http.MethodPost, "/runs/"+id+"/fuel?what="+what, nil)
		r.Header.Set("Tenant", tenant)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		tenant, id string
		want       int
	}{{"a", "1SLOW", 303}, {"a", "2SLOW", 303}, {"a", "3SLOW", 429}, {"b", "1SLOW", 303}, {"b", "2SLOW", 429}, {"c", "1SLOW", 303}, {"d", "1SLOW", 303}, {"e", "1SLOW", 303}, {"f", "1SLOW", 429}} {
		if code := post(c.tenant, c.id, ""); code != c.want {
			t.Errorf("%s of %s: %d, want %d", c.id, c.tenant, code, c.want)
		}
	}
	for _, tenant := range []string{"a", "b", "c", "d", "e"} {
		post(tenant, "1SLOW", "cancel")
		post(tenant, "2SLOW", "cancel")
	}
}

func TestPageOfATool(t *testing.T) {
	log := store.Memory()
	rates(t, log, "")
	record(t, log, "OTHER", `{"city":"Oslo"}`)
	b := openView(t, executing(viewOf(log, "")))
	b.wants("/tools", `href="/tools/rates" data-open>rates</a></td><td class="number">12</td><td class="number">12</td><td class="number problem">2</td><td class="number">2</td>`, ">weather</a>")
	b.wants("/tools/rates", moduleOne, moduleTwo, "2, 16.7%", `href="/?q=tool%3Arates&#43;error%3Atool"`, "answered 503",
		`href="/?q=tool%3Arates&#43;host%3Arates.example"`, "first use of version ", `<b>p50</b> 3.5k`, `<b>max</b> 13.1k`)
	change := "/tools/rates/change?to="
	finish(b, change+moduleTwo, nil)
	b.wants(change+moduleTwo, "differ</b> 12", "the same</b> 0", `href="/runs/RATES00/events/3"`, "GET /eur", "GET /usd")
	finish(b, change+moduleOne, nil)
	b.wants(change+moduleOne, "the same</b> 12")
	b.wants("/tools/rates", `<option value="`+moduleTwo+`">2b2b2b2b2b2b, last used `, `<li class="pl-failed">failed</li>`)
	finish(b, "/tools/rates/change", url.Values{"to": {moduleOne}, "other": {strings.Repeat("3c", 32)}})
	b.wants(change+strings.Repeat("3c", 32), "the same</b> 12")
	recordUse(t, log, "NOTOOL", "rates", moduleOne, 200, 1000)
	finish(b, change+moduleTwo, nil)
	b.wants(change+moduleTwo, "1 run could not be executed: this version has no tool &#34;rates&#34;")
	if code, _ := b.get(change + "../../secret"); code != http.StatusBadRequest {
		t.Errorf("a version that is not a digest: %d", code)
	}
}

// TestProgramsAreToldByTheirFirstLine, and a response by its status, which may be red although the
// effect is well.
func TestProgramsAreToldByTheirFirstLine(t *testing.T) {
	log := store.Memory()
	recordUse(t, log, "R", "rates", moduleOne, 404, 1000)
	if body := openView(t, viewOf(log, "")).wants("/runs/R?at=3"); strings.Contains(body, "<dt>state</dt>") || !strings.Contains(body, "<dt>status</dt><dd>404</dd>") {
		t.Errorf("the panel of a request: %s", body)
	}
	for id, code := range map[string]string{"A": "\n\nprint(\"a\\n\")\nprint(2)", "B": "print(\"a\\n\")", "C": "print(\"a\\n\")\n" + strings.Repeat("# \\", 3000)} {
		appendEvent(t, log, id, event.KindRunStarted, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "run_py"})
		args, err := canon.Marshal(map[string]string{"code": code})
		if err != nil {
			t.Fatal(err)
		}
		appendEvent(t, log, id, event.KindToolCallScheduled, event.ToolCallScheduled{CallID: "c", ToolName: "run_py", Attempt: 1, Args: args})
		openView(t, viewOf(log, "")).wants("/runs/"+id, `<small>print(&#34;a\n&#34;)</small></h1>`)
	}
}

// TestToolPagesShowOwnRunsAlone: a tenant sees and executes nothing that only another one uses.
func TestToolPagesShowOwnRunsAlone(t *testing.T) {
	log := store.Memory()
	recordUse(t, log, "acme/1", "rates", moduleOne, 200, 1000)
	recordUse(t, log, "other/2", "rates", moduleTwo, 503, 9000)
	recordUse(t, log, "other/3", "secret", moduleTwo, 200, 1000)
	b := openView(t, executing(viewOf(log, "acme")))
	if body := b.wants("/tools", "rates"); strings.Contains(body, "secret") || !strings.Contains(body, `<td class="number">1</td><td class="number">1</td><td class="number">0</td>`) {
		t.Errorf("the list tells of others: %s", body)
	}
	if body := b.wants("/tools/rates"); strings.Contains(body, moduleTwo) || strings.Contains(body, "503") {
		t.Errorf("the page tells of others: %s", body)
	}
	for _, path := range []string{"/tools/secret", "/tools/rates/change?to=" + moduleTwo} {
		for _, ask := range []func() (int, string){func() (int, string) { return b.get(path) }, func() (int, string) { return b.post(path, nil) }} {
			if code, _ := ask(); code != http.StatusNotFound && code != http.StatusMethodNotAllowed {
				t.Errorf("%s: %d", path, code)
			}
		}
	}
}

// TestToolsByClicks goes the ways of a user: from a failure of a tool to its runs, to the fuel of one,
// and to what another version would have changed.
func TestToolsByClicks(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	c := newChromium(t, withForms(t, galleryView(t)))
	at := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("the click leads to %s, not %s", got, want)
		}
		if c.console != "" {
			t.Errorf("%s: the browser says: %s", got, c.console)
		}
	}
	done := func(element string) {
		c.until(fmt.Sprintf("!document.querySelector('[value=cancel]') && document.querySelector(%q)", element))
	}
	c.open("/")
	at(c.follow(`nav a[href="/tools"]`), "/tools")
	at(c.follow(`a[href="/tools/rates"]`), "/tools/rates")
	c.eval(`document.querySelector("[name=to]").value = "`+moduleTwo+`"`, nil)
	at(c.follow(".compare button"), "/tools/rates/change?to="+moduleTwo)
	done("table")
	c.follow("table a")
	at(c.follow(`.views a[href*="fuel"]`), "/runs/RATES11/fuel")
	c.follow(".task button")
	done(".flame a")
	at(c.follow(`.flame svg svg:nth-of-type(4) a`), "/runs/RATES11/fuel?in=0.0.0")
	at(c.follow(".main .crumbs a:nth-of-type(2)"), "/runs/RATES11/fuel?in=0")
	c.open("/runs/SLOW/fuel")
	c.follow(".task button")
	c.photograph("fuel-executing", "/runs/SLOW/fuel")
	c.follow("[value=cancel]")
	done(".task .note")
	if dom := c.dom(); !strings.Contains(dom, "Cancelled.") {
		t.Errorf("it was not cancelled: %s", dom)
	}
}
