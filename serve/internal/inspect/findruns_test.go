package inspect_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/incidenttest"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/queue"
)

// TestMain lets modules be compiled in processes of this program.
func TestMain(m *testing.M) {
	guest.WorkerMain()
	m.Run()
}

// TestIncidentOnThePage looks at an incident as somebody does who was just woken: the first screen
// names the three reasons, and a click on one of them shows its runs.
func TestIncidentOnThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	path := filepath.Join(t.TempDir(), "incident.db")
	incidenttest.Record(t, path)
	log, err := store.OpenFile(t.Context(), path, store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(viewOf(log, ""), "")})
	if err != nil {
		t.Fatal(err)
	}
	c := newChromium(t, s)
	text := func(selector string) (text string) {
		c.eval(fmt.Sprintf("document.querySelector(%q)?.textContent", selector), &text)
		return text
	}
	number := func(expression string) (n int) {
		c.eval(expression, &n)
		return n
	}
	rows := "document.querySelectorAll('tr[data-row]').length"

	c.shows("/", fmt.Sprintf("%d failed", incidenttest.Failed))
	if bottom := number("Math.round(document.querySelector('.reasons').getBoundingClientRect().bottom)"); bottom > 600 {
		t.Errorf("the reasons end at %d px, below the first screen", bottom)
	}
	for i, want := range []string{
		fmt.Sprint(incidenttest.Broken, "customersstatus 503"), fmt.Sprint(incidenttest.Silent, "gettimeout: "), fmt.Sprint(incidenttest.Spinning, "spinout of fuel: "),
	} {
		if got := text(fmt.Sprintf(".reasons li:nth-child(%d)", i+1)); !strings.HasPrefix(got, want) {
			t.Errorf("reason %d is %q, want %q", i+1, got, want)
		}
	}
	if got := text(".reasons li:first-child .when time:last-child"); number(`document.querySelectorAll(".reasons time[datetime]").length`) < 3 || !regexp.MustCompile(`^[0-9: -]+$`).MatchString(got) {
		t.Errorf("the last run of the first reason was at %q", got)
	}
	c.photograph("incident-list", "/")
	c.open("/")
	if to := c.follow(".reasons li:nth-child(2) a"); number(rows) != incidenttest.Silent || !strings.Contains(to, "%22%3Dget%3A+timeout") {
		t.Errorf("%s shows %d runs", to, number(rows))
	}
	c.photograph("incident-found", "/?q=state%3Afailed+tool%3Aget")
	c.open("/")
	if to := c.follow(".histogram a:last-of-type"); number(rows) == 0 || !strings.Contains(to, "since%3A") || !strings.Contains(to, "until%3A") {
		t.Errorf("%s shows %d runs", to, number(rows))
	}

	// Typing completes the last word; Enter searches, without a script as well.
	c.open("/?q=state:failed")
	c.eval(`(() => { const f = document.querySelector("#search"); f.focus(); f.value = "state:failed sta"; f.dispatchEvent(new Event("input")); })()`, nil)
	if got := text("#words") + fmt.Sprint(number(`[...document.querySelectorAll("#words option")].filter((o) => o.value === "state:failed status:5xx").length`)); got != "1" {
		t.Errorf("the field completes %q", got)
	}
	c.eval(`document.querySelector("#search").value = "status:5xx customers"`, nil)
	if to := c.follow(".search button"); number(rows) != incidenttest.Broken || to != "/?q=status%3A5xx+customers" {
		t.Errorf("%s shows %d runs", to, number(rows))
	}
	c.open("/?q=state:faild")
	if got := text("[role=alert]"); !strings.Contains(got, `Character 1: "faild" is not the state of a run.`) {
		t.Errorf("a wrong query is answered with %q", got)
	}
	c.photograph("incident-wrong", "/?q=tool:x+state:faild")

	// A run that is new arrives, and what is typed stays.
	c.shows("/")
	c.eval(`document.querySelector("#search").value = "half a wo"`, nil)
	record(t, log, "01ARRIVED", `{"city":"Oslo"}`)
	c.until(`document.querySelector("tr.fresh a[href='/runs/01ARRIVED']")`)
	if number(`document.querySelectorAll("tr.fresh").length`) != 1 || number(rows) != 50 || number(`document.querySelector("#search").value.length`) != 9 {
		t.Error("the page did more than show the new run")
	}
	if c.console != "" {
		t.Error("the browser says:", c.console)
	}
}

// TestCancelIsAskedOnce ends a run on the page of the queue.
func TestCancelIsAskedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: a browser takes its time")
	}
	q := busyQueue(t)
	view := eventview.View{Operator: operatorOf(q), Title: "operator"}
	view.Operator.Names = func(_ context.Context, jobs []queue.Status) map[string]string {
		return map[string]string{jobs[0].RunID: "<b>fetch</b>"}
	}
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(view, "")})
	if err != nil {
		t.Fatal(err)
	}
	c := newChromium(t, s)
	dom := c.shows("/queue", "&lt;b&gt;fetch&lt;/b&gt;", "acme/01M7YVXB018EN80T6T0GRJB4DR")
	if strings.Contains(dom, ">Compare<") || strings.Contains(dom, ">Runs</a>") {
		t.Error("an operator sees links of a tenant")
	}
	for _, path := range []string{"/nowhere", "/runs/none", "/queue?state=x"} {
		if dom := c.dom(); strings.Contains(dom, ">Compare<") || strings.Contains(dom, "All runs") {
			t.Errorf("%s: an operator sees links of a tenant", path)
		}
		c.open(path)
	}
	c.open("/queue")
	var hidden bool
	c.eval(`!document.querySelector(".ask form").checkVisibility()`, &hidden)
	if c.click(".ask summary"); !hidden {
		t.Error("the run would be ended without a question")
	}
	c.photograph("queue-operator", "/queue")
	c.open("/queue")
	c.click(".ask summary")
	c.follow(".ask[open] button")
	c.until(`!document.body.textContent.includes("01M7YVXB018EN80T6T0GRJB4DR") || document.body.textContent.includes("cancelling")`)
}
