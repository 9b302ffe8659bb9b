package inspect

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/narrate"
	"github.com/starling-host/starling/host/queue"
)

// queuePage is the queue of all tenants, and the hosts that work on it.
type queuePage struct {
	Hosts    []hostLine
	Tabs     []link
	Tenants  []link
	Jobs     []jobLine
	Next     string // path, or empty
	Steers   bool   // there are buttons
	Back     string // path of this page
	Narrowed bool
}

type hostLine struct {
	Name, ID, Version string
	State             state
	Runs              string
	Seen              moment
	Forms             []steerForm
}

type jobLine struct {
	ID, Path            string // Path is empty where runs cannot be looked at
	State               state
	Attempts, Host, Why string
	When                moment
	Forms               []steerForm
}

// steerForm is a button that does something with a run or a host.
type steerForm struct{ Word, Path, Of string }

// stateOfJob is the word for where a job stands, and the class that it is drawn with.
func stateOfJob(word string) state {
	classes := map[string]string{queue.StateRunning: "good", queue.StateSleeping: "warn", queue.StateCancelling: "warn"}
	if class := classes[word]; class != "" {
		return state{word, class}
	}
	return state{word, "open"}
}

func sentenceOf(job queue.JobDocument) string {
	return narrate.Shorten(narrate.Printable(job.Sentence()), maxLine)
}

// whenOfJob is the time until which a job sleeps, or since which it waits or runs.
func whenOfJob(job queue.JobDocument, now time.Time) moment {
	at := job.At()
	m := newMoment(at.UnixNano(), now)
	if job.Until != "" && at.After(now) {
		m.Ago = "in " + strings.TrimSuffix(ago(at.Sub(now)), " ago")
	}
	return m
}

// queue shows the queue to an operator. For everybody else there is no such page.
func (s *Server) queue(w http.ResponseWriter, r *http.Request, v logview.View) error {
	if v.Operator == nil {
		return eventlog.ErrRunNotFound
	}
	q := r.URL.Query()
	f := queue.Filter{Tenant: q.Get("tenant"), Limit: perPage}
	f.After, _ = strconv.ParseInt(q.Get("after"), 10, 64)
	if name := q.Get("state"); name != "" {
		of, ok := queue.States[name]
		if !ok {
			return &status{http.StatusBadRequest, "There is no such state of a run: it is waiting, sleeping or running."}
		}
		f.States = []queue.State{of}
	}
	doc, err := v.Operator.Queue.Overview(r.Context(), f)
	if err != nil {
		return err
	}
	hosts, err := v.Operator.Queue.HostList(r.Context())
	if err != nil {
		return err
	}
	now := time.Now()
	p := queuePage{Steers: v.Operator.Steer != nil, Back: s.queuePath(q.Get("tenant"), q.Get("state"), f.After), Narrowed: f.Tenant != "" || f.States != nil}
	for _, h := range hosts.Items {
		p.Hosts = append(p.Hosts, s.hostLine(h, now))
	}
	for _, job := range doc.Items {
		line := jobLine{
			ID: narrate.Printable(job.RunID), State: stateOfJob(job.State), Attempts: job.Attempts(), Host: narrate.Printable(job.Host),
			When: whenOfJob(job, now), Why: narrate.Shorten(narrate.Printable(job.Why()), maxLine),
		}
		if v.Log != nil {
			line.Path = s.path("runs", job.RunID)
		}
		if job.State == queue.StateSleeping {
			line.Forms = append(line.Forms, steerForm{"Retry", s.path("queue", "retry"), job.RunID})
		}
		if job.State != queue.StateCancelling {
			line.Forms = append(line.Forms, steerForm{"Cancel", s.path("queue", "cancel"), job.RunID})
		}
		p.Jobs = append(p.Jobs, line)
	}
	if doc.Next > 0 {
		p.Next = s.queuePath(f.Tenant, q.Get("state"), doc.Next)
	}
	all := link{Name: "all tenants", Path: s.queuePath("", q.Get("state"), 0), Current: f.Tenant == ""}
	p.Tenants = append(p.Tenants, all)
	counts := map[string]int{}
	for _, t := range doc.Tenants {
		n := t.Waiting + t.Sleeping + t.Running
		name := narrate.Printable(t.Tenant)
		if t.Paused {
			name += " (suspended)"
		}
		p.Tenants = append(p.Tenants, link{name, s.queuePath(t.Tenant, q.Get("state"), 0), narrate.Grouped(uint64(n)), f.Tenant == t.Tenant})
		for word, n := range map[string]int{"": n, queue.StateWaiting: t.Waiting, queue.StateSleeping: t.Sleeping, queue.StateRunning: t.Running} {
			counts[word] += n
		}
	}
	for _, word := range []string{"", queue.StateWaiting, queue.StateSleeping, queue.StateRunning} {
		tab := link{word, s.queuePath(f.Tenant, word, 0), narrate.Grouped(uint64(counts[word])), q.Get("state") == word}
		if word == "" {
			tab.Name = "all"
		}
		p.Tabs = append(p.Tabs, tab)
	}
	s.render(w, r, http.StatusOK, "queue", "Queue", v, p)
	return nil
}

func (s *Server) hostLine(h queue.HostDocument, now time.Time) hostLine {
	line := hostLine{Name: narrate.Printable(h.Name), ID: narrate.Printable(h.ID), Version: narrate.Printable(h.Version), Runs: narrate.Grouped(uint64(h.Running))}
	if seen, err := time.Parse(time.RFC3339Nano, h.SeenAt); err == nil {
		line.Seen = newMoment(seen.UnixNano(), now)
	}
	switch h.State {
	case queue.HostWorking:
		line.State, line.Forms = state{h.State, "good"}, []steerForm{{"Drain", s.path("queue", "drain"), h.ID}}
	case queue.HostDraining, queue.HostDrained:
		line.State, line.Forms = state{h.State, "warn"}, []steerForm{{"Resume", s.path("queue", "resume"), h.ID}}
	default:
		line.State = state{h.State, "bad"}
	}
	return line
}

// queuePath is the address of a page of the queue.
func (s *Server) queuePath(tenant, state string, after int64) string {
	q := url.Values{}
	for name, value := range map[string]string{"tenant": tenant, "state": state} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if after > 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	if len(q) == 0 {
		return s.path("queue")
	}
	return s.path("queue") + "?" + q.Encode()
}

// steer does what an operator asks for, and shows the queue again.
func (s *Server) steer(w http.ResponseWriter, r *http.Request, v logview.View) error {
	if v.Operator == nil || v.Operator.Steer == nil {
		return eventlog.ErrRunNotFound
	}
	if !fromOurPage(w, r) {
		return &status{http.StatusForbidden, "The form has expired. Go back, load the page again and try once more."}
	}
	ctx := context.WithoutCancel(r.Context()) // it is done, also if nobody waits for the answer
	switch err := v.Operator.Steer(ctx, r.PathValue("what"), r.PostFormValue("of")); {
	case errors.Is(err, queue.ErrNotFound):
		return &status{http.StatusConflict, "This run is not in the queue any more: it has ended."}
	case errors.Is(err, queue.ErrNotSleeping):
		return &status{http.StatusConflict, "This run does not sleep any more."}
	case errors.Is(err, queue.ErrNoHost):
		return &status{http.StatusConflict, "This host does not work any more."}
	case err != nil:
		return err
	}
	http.Redirect(w, r, s.ours(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}
