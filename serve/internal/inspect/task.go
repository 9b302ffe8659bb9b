package inspect

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
)

// Bounds of tasks.
const (
	maxTaskTime  = 10 * time.Minute
	unseenTime   = 2 * time.Minute // after which a task that no page looks at is cancelled
	tasksRunning = 6               // of one namespace 2, while half are free, and 1 later
	tasksKept    = 4               // finished ones, of one namespace; of all four times as many
	checksKept   = 256             // likewise
)

// task is an execution of runs again, which takes longer than a request, or a check of a run, which
// does not. Its result is kept until later ones take its place.
type task struct {
	namespace, key string
	began          time.Time
	cancel         context.CancelFunc // nil for a check
	unseen         *time.Timer
	finished       chan struct{}

	mu     sync.Mutex // guards what follows
	n, all uint64     // how far it is
	unit   string
	result any // also of a part, if it was cancelled
	err    error
	took   time.Duration
}

// taskOf returns the key of a task on a run as the reader reads it: once the key of the run is
// destroyed, its first event is another one and no page shows earlier results.
func taskOf(ctx context.Context, v eventview.View, what, run string) string {
	first, _ := v.Event(ctx, run, 1)
	return what + " " + run + " " + first.Hash().String()
}

// report tells the pages how far the task is, such as 3 of 50 runs.
func (t *task) report(n, all uint64, unit string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n, t.all, t.unit = n, all, unit
}

// spending returns a function that reports the fuel that an execution spends.
func (t *task) spending(all uint64) func(fuel uint64) {
	t.report(0, all, "fuel")
	var spent atomic.Uint64
	return func(fuel uint64) { t.report(spent.Add(fuel), all, "fuel") }
}

func (t *task) running() bool {
	select {
	case <-t.finished:
		return false
	default:
		return true
	}
}

// tasks are those of a server.
type tasks struct {
	mu     sync.Mutex // guards all and closed
	all    []*task    // the oldest first
	closed bool
}

func (ts *tasks) find(namespace, key string) *task {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.all {
		if t.namespace == namespace && t.key == key {
			return t
		}
	}
	return nil
}

// start begins a task in place of an earlier one with its key, unless that is running. It is
// charged to the tenant of the request. The work returns the result of all that it has done also
// with an error.
func (ts *tasks) start(ctx context.Context, namespace, key string, work func(ctx context.Context, t *task) (any, error)) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	running, ofAll := 0, 0
	for _, t := range ts.all {
		switch {
		case !t.running():
		case t.namespace == namespace && t.key == key:
			return nil
		case t.namespace == namespace:
			running++
			fallthrough
		default:
			ofAll++
		}
	}
	most := 1
	if ofAll < tasksRunning/2 {
		most = 2
	}
	if ts.closed || running >= most || ofAll >= tasksRunning {
		return &status{http.StatusTooManyRequests, "Other runs are being executed. Wait until one of those executions has ended, or cancel it."}
	}
	ctx, end := share.Aside(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeoutCause(ctx, maxTaskTime, errors.New("stopped after "+display.Duration(maxTaskTime)))
	t := &task{namespace: namespace, key: key, began: time.Now(), cancel: cancel, unseen: time.AfterFunc(unseenTime, cancel), finished: make(chan struct{})}
	ts.put(t, tasksKept)
	go func() {
		defer close(t.finished)
		defer end()
		defer cancel()
		result, err := work(ctx, t)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.result, t.err, t.took = result, err, time.Since(t.began)
	}()
	return nil
}

// keep keeps the result of a check. So it has an address, which can be shared.
func (ts *tasks) keep(namespace, key string, began time.Time, result any) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := &task{namespace: namespace, key: key, began: began, finished: make(chan struct{}), result: result, took: time.Since(began)}
	close(t.finished)
	ts.put(t, checksKept)
}

// put adds a task in place of the one with its key, and of the oldest finished ones of its kind. The
// caller holds mu.
func (ts *tasks) put(t *task, kept int) {
	own, all := 0, 0
	for i, o := range slices.Backward(ts.all) {
		of := o.namespace == t.namespace
		replaced := of && o.key == t.key
		if !replaced && (o.cancel == nil) == (t.cancel == nil) && !o.running() {
			if all++; of {
				own++
			}
			replaced = of && own >= kept || all >= 4*kept
		}
		if replaced {
			ts.all = slices.Delete(ts.all, i, i+1)
		}
	}
	ts.all = append(ts.all, t)
}

// stop cancels all tasks, and waits until they have ended.
func (ts *tasks) stop() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.closed = true
	for _, t := range ts.all {
		if t.running() {
			t.cancel()
			<-t.finished
		}
	}
}

// taskState is how a page shows a task.
type taskState struct {
	Action              string // of the forms, or empty where runs cannot be executed
	Begun, Running, Cut bool
	Progress            string
	Percent             string
	Error, Took, Ago    string
}

// look returns how far the task of a page is, and its result. A page of a running task loads
// itself again.
func (s *Server) look(w http.ResponseWriter, v eventview.View, key, action string) (state taskState, result any) {
	if v.Executor != nil {
		state.Action = action
	}
	t := s.tasks.find(v.Namespace, key)
	if t == nil {
		return state, nil
	}
	t.unseen.Reset(unseenTime)
	t.mu.Lock()
	defer t.mu.Unlock()
	state.Begun, state.Running = true, t.running()
	if state.Running {
		w.Header().Set("Refresh", "1")
		state.Progress, state.Percent = "Executing…", percent(float64(min(t.n, t.all))/float64(max(t.all, 1)))
		if t.all > 0 {
			state.Progress = "Executed " + display.Count(t.n, display.FuelUnits(), "") + " of " + display.Count(t.all, display.FuelUnits(), "") + " " + t.unit + "."
		}
		return state, nil
	}
	state.Took, state.Ago = display.Duration(t.took), ago(time.Since(t.began))
	switch {
	case errors.Is(t.err, context.Canceled):
		state.Cut = true
	case t.err != nil:
		state.Error = display.PrintableError(t.err)
	}
	return state, t.result
}

// command begins or cancels the task of a page, as the form of the request says, and leads back to
// the page.
func (s *Server) command(w http.ResponseWriter, r *http.Request, v eventview.View, key, page string, work func(ctx context.Context, t *task) (any, error)) error {
	if v.Executor == nil {
		return &status{http.StatusNotFound, "Runs cannot be executed here."}
	}
	if r.PostFormValue("what") == "cancel" {
		if t := s.tasks.find(v.Namespace, key); t != nil {
			t.cancel()
			<-t.finished
		}
	} else if err := s.tasks.start(r.Context(), v.Namespace, key, work); err != nil {
		return err
	}
	http.Redirect(w, r, page, http.StatusSeeOther)
	return nil
}
