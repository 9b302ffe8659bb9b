package simtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

const (
	lease = 6 * time.Second
	poll  = time.Second
	// trouble is how long a schedule injects failures. Then it heals, and all runs must end.
	trouble = 20 * time.Second
	// most is how long all runs may take from then on: a job that failed waits for up to 16 s,
	// one that is sent to end its run for up to 81 s, and both may happen in a row.
	most = 10 * time.Minute
	fuel = 7 // that each run uses
)

// world is one schedule while it runs.
type world struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand // of the plan
	db     *database
	server bool
	faults faults
	logger *slog.Logger
	began  time.Time

	limits     map[string]queue.Limits
	pauseAt    time.Duration // of the tenant "paused"
	resumeAt   time.Duration
	bursts     map[string]int // jobs of each tenant that are enqueued before any host works
	longest    time.Duration  // a handler works
	mishandled float64        // how likely a handler fails
	background sync.WaitGroup // processes, and what happens to them
	clients    sync.WaitGroup // they submit runs and cancel them
	mu         sync.Mutex
	failures   []string
	processes  []*process
	promised   map[string]bool // runs whose acceptance was acknowledged
	refused    map[string]bool
	cancelled  map[string]time.Time // when the cancellation was acknowledged
	tried      map[string]bool      // runs that somebody tried to cancel
	working    map[string]*work     // by run
}

// work is a handler at work.
type work struct {
	ctx   context.Context
	p     *process
	epoch uint64
}

// process is one process of a host.
type process struct {
	w      *world
	name   string // of the process
	handle *handle
	queue  *queue.Queue
	stop   context.CancelFunc
	done   chan struct{}
	dead   bool      // killed or stopped
	drains time.Time // when it was told to drain, or zero; guarded by world.mu
}

// random returns a source for one purpose, so that what one does with it changes no other.
func (w *world) random(purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// fail notes what a schedule must not show.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) < 20 {
		w.failures = append(w.failures, fmt.Sprintf("%v: %s", time.Since(w.began).Round(time.Millisecond), fmt.Sprintf(format, args...)))
	}
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// runSchedule runs the schedule of a seed and returns what was wrong.
func runSchedule(t *testing.T, seed uint64, logger *slog.Logger) []string {
	db, err := openDatabase()
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	w := &world{
		t: t, seed: seed, db: db, logger: logger, began: time.Now(),
		promised: make(map[string]bool), refused: make(map[string]bool), cancelled: make(map[string]time.Time), tried: make(map[string]bool),
		working: make(map[string]*work),
	}
	w.rng = w.random("plan")
	w.plan()
	w.burst()
	for i := range 1 + w.rng.IntN(4) {
		w.host(i)
	}
	w.late()
	time.Sleep(trouble)
	w.heal()
	w.settle()
	w.leave()
	time.Sleep(most) // handlers of killed processes return, which Work did not wait for
	w.check()
	return w.failures
}

// plan draws what holds for the whole schedule.
func (w *world) plan() {
	rng := w.rng
	w.server = rng.IntN(4) > 0
	rare := func() float64 { return pick(rng, 0, 0, 0.01, 0.05) }
	w.faults = faults{
		before: rare(), unknown: rare(), again: rare(), lost: pick(rng, 0, 0.1, 1),
		latency: pick(rng, 200*time.Microsecond, 2*time.Millisecond, 20*time.Millisecond, 150*time.Millisecond),
		work:    pick(rng, 0, 5*time.Millisecond, 40*time.Millisecond),
	}
	w.limits, w.bursts = make(map[string]queue.Limits), make(map[string]int)
	for _, name := range []string{"a", "b", "c"}[:2+rng.IntN(2)] {
		w.limits[name] = queue.Limits{Weight: pick(rng, 0, 0.5, 1, 2, 3)}
		w.bursts[name] = 4 + rng.IntN(9)
	}
	w.limits["capped"] = queue.Limits{MaxRunning: 1 + rng.IntN(2)}
	w.limits["few"] = queue.Limits{MaxWaiting: 2}
	w.pauseAt = between(rng, 0, trouble/2)
	w.resumeAt = w.pauseAt + between(rng, 0, trouble/2)
	w.longest = pick(rng, 50*time.Millisecond, time.Second, 3*time.Second)
	w.mishandled = pick(rng, 0, 0.1, 0.3)
}

// limitsOf is Config.Limits.
func (w *world) limitsOf(name string) queue.Limits {
	l := w.limits[name]
	if at := time.Since(w.began); name == "paused" && at >= w.pauseAt && at < w.resumeAt {
		l.Paused = true
	}
	return l
}

// open starts a process, which does not work yet. It returns nil if it cannot.
func (w *world) open(name, host string, workers int) *process {
	p := &process{w: w, name: name, done: make(chan struct{})}
	w.mu.Lock()
	p.handle = &handle{db: w.db, server: w.server, rng: w.random(name), faults: w.faults}
	w.mu.Unlock()
	var log eventlog.Transactor = p.handle
	if !w.server {
		log = file{p.handle}
	}
	cfg := queue.Config{Host: host, Label: name, Workers: workers, Lease: lease, Poll: poll, Grace: time.Second, Limits: w.limitsOf}
	if w.logger != nil {
		cfg.Logger = w.logger.With("process", name)
	}
	var err error
	for range 20 {
		if p.queue, err = queue.Open(context.Background(), log, cfg); err == nil {
			return p
		}
		time.Sleep(poll)
	}
	w.fail("%s cannot be opened: %v", name, err)
	return nil
}

// start makes a process work.
func (w *world) start(name, host string, workers int) *process {
	p := w.open(name, host, workers)
	if p == nil {
		return nil
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	w.background.Go(func() {
		defer close(p.done)
		if err := p.queue.Work(ctx, p.work); err != nil {
			w.fail("%s: %v", name, err)
		}
	})
	return p
}

// end ends a process: it is killed, or stops as it should.
func (p *process) end(kill bool) {
	p.w.mu.Lock()
	p.dead = true
	p.w.mu.Unlock()
	if kill {
		p.handle.kill()
	}
	p.stop()
}

// drain notes that the process drains, since then or no more.
func (p *process) drain(since time.Time) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.drains = since
}

// any returns some process that works, or nil.
func (w *world) any(rng *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.dead })
	if len(alive) == 0 {
		return nil
	}
	return alive[rng.IntN(len(alive))]
}

// host lives through the processes of one host, and what happens to them.
func (w *world) host(n int) {
	rng := w.random(fmt.Sprint("host ", n))
	w.background.Go(func() {
		// Fewer than eight workers, none of which is reserved for idle tenants: see checkFair.
		workers := 1 + rng.IntN(7)
		name := pick(rng, "", fmt.Sprint("host", n))
		for life := 0; time.Since(w.began) < trouble; life++ {
			p := w.start(fmt.Sprintf("host%d.%d", n, life), name, workers)
			if p == nil {
				return
			}
			time.Sleep(between(rng, 0, trouble/2))
			if time.Since(w.began) >= trouble {
				return
			}
			switch rng.IntN(6) {
			case 0:
				p.end(true)
			case 1:
				p.end(false)
				if rng.IntN(2) == 0 {
					<-p.done
				}
			case 2, 3:
				d := between(rng, lease/2, 3*lease)
				p.handle.freeze(d)
				if rng.IntN(2) == 0 { // somebody starts it again, beside the one that hangs
					continue
				}
				time.Sleep(d)
				p.end(rng.IntN(2) == 0)
			case 4:
				if p.queue.Drain(context.Background(), p.name, true) == nil {
					p.drain(time.Now())
				}
				time.Sleep(between(rng, 0, 2*lease))
				p.drain(time.Time{})
				for range 20 {
					if p.queue.Drain(context.Background(), p.name, false) == nil {
						break
					}
					time.Sleep(poll)
				}
				return
			default:
				return // it lives
			}
			time.Sleep(between(rng, 0, lease))
		}
	})
}

// burst enqueues the jobs of the tenants that always have some, before any host works.
func (w *world) burst() {
	quiet := w.faults
	w.faults = faults{}
	p := w.open("burst", "", 1)
	w.faults = quiet
	for name, n := range w.bursts {
		for i := range n {
			w.enqueue(p, fmt.Sprint(name, "/", i), name)
		}
	}
}

// enqueue submits a run once, and reports whether to try again.
func (w *world) enqueue(p *process, runID, tenant string) (again bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	first := (&logtest.Chain{RunID: runID}).Start("goal")
	j := queue.Job{RunID: runID, Tenant: tenant, MaxAttempts: 3, Payload: []byte(runID)}
	err := p.queue.Enqueue(ctx, j, func(tx eventlog.Tx) error { return tx.Append(runID, first) })
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, queue.ErrExists), errors.Is(err, eventlog.ErrInvalidAppend):
		w.promised[runID] = true
	case errors.Is(err, queue.ErrTenantFull), errors.Is(err, queue.ErrFull):
		w.refused[runID] = true
	default:
		return true
	}
	return false
}

// late submits more runs while hosts work and fail, to any of them, and cancels some.
func (w *world) late() {
	for i := range 10 + w.rng.IntN(15) {
		of := pick(w.rng, "late", "late", "capped", "capped", "paused", "few")
		runID := fmt.Sprint(of, "/", i)
		rng := w.random(runID + " submitted")
		w.clients.Go(func() {
			time.Sleep(between(rng, 0, trouble))
			unknown := false
			for range 40 {
				p := w.any(rng)
				if p != nil && !w.enqueue(p, runID, of) {
					break
				}
				unknown = unknown || p != nil
				time.Sleep(poll / 2)
			}
			w.mu.Lock()
			promised := w.promised[runID]
			if unknown { // an earlier try may have stored it
				delete(w.refused, runID)
			}
			w.mu.Unlock()
			if !promised || rng.IntN(3) > 0 {
				return
			}
			time.Sleep(between(rng, 0, 5*time.Second))
			w.mu.Lock()
			w.tried[runID] = true
			w.mu.Unlock()
			for range 40 {
				if p := w.any(rng); p != nil {
					err := p.queue.Cancel(context.Background(), runID)
					if errors.Is(err, queue.ErrNotFound) {
						return
					}
					if err == nil {
						w.mu.Lock()
						w.cancelled[runID] = time.Now()
						w.mu.Unlock()
						return
					}
				}
				time.Sleep(poll / 2)
			}
		})
	}
}

// work is the handler. It records what a host does: an event of its own, and the end of the run.
func (p *process) work(ctx context.Context, l queue.Lease) error {
	w := p.w
	defer w.begin(ctx, p, l)()
	if string(l.Payload) != l.RunID {
		w.fail("%s: the payload is %q", l.RunID, l.Payload)
	}
	events, err := p.handle.Read(ctx, l.RunID)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		w.fail("%s was handed out and has no first event", l.RunID)
		return nil
	}
	l.Used(tenant.DayUsage{Fuel: fuel})
	if events[len(events)-1].Kind.Terminal() {
		return nil
	}
	chain := logtest.Resume(events)
	end := func() error { return p.handle.Append(context.WithoutCancel(ctx), l.RunID, l.Epoch, chain.Complete()) }
	if l.Cancelled || l.Exhausted {
		return end()
	}
	if err := l.Begin(ctx); err != nil {
		return err
	}
	value, err := event.EncodePayload(p.name)
	if err == nil {
		err = p.handle.Append(ctx, l.RunID, l.Epoch, chain.Next(event.SideEffectRecorded{Name: "host", Value: value}))
	}
	if err != nil {
		return err
	}
	rng := w.random(fmt.Sprint(l.RunID, " worked ", l.Epoch))
	select {
	case <-time.After(between(rng, 0, w.longest)):
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), queue.ErrCancelled) {
			return end()
		}
		return context.Cause(ctx)
	}
	if rng.Float64() < w.mishandled {
		switch rng.IntN(4) {
		case 0:
			return errors.New("failed")
		case 1:
			panic("mistake")
		case 2:
			return tool.ToolSnooze(between(rng, time.Millisecond, lease), errors.New("busy"))
		default:
			return &queue.HostError{Class: "disk", Err: errors.New("full")}
		}
	}
	return end()
}

// begin notes that a handler begins, and returns what notes that it has ended.
func (w *world) begin(ctx context.Context, p *process, l queue.Lease) (ended func()) {
	w.mu.Lock()
	before := w.working[l.RunID]
	mine := &work{ctx, p, l.Epoch}
	w.working[l.RunID] = mine
	drains, cancelled := p.drains, w.cancelled[l.RunID]
	w.mu.Unlock()
	// A process that can make transactions looks at least once in a poll.
	if !drains.IsZero() && time.Since(drains) > lease {
		w.fail("%s is handed out to %s, which drains", l.RunID, p.name)
	}
	if !cancelled.IsZero() && !l.Cancelled && w.claimed(l).After(cancelled) {
		w.fail("%s is handed out to be worked, and was cancelled before", l.RunID)
	}
	switch {
	case before == nil:
	case before.epoch == l.Epoch:
		w.fail("%s is handed out twice in epoch %d", l.RunID, l.Epoch)
	case before.epoch > l.Epoch: // the answer to this claim was late
		if w.holdsLease(p) {
			w.fail("%s is worked by %s, whose lease is valid, after %s has got it", l.RunID, p.name, before.p.name)
		}
	case before.ctx.Err() == nil && w.holdsLease(before.p):
		w.fail("%s is handed out to %s while %s works it, whose lease is valid", l.RunID, p.name, before.p.name)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.working[l.RunID] == mine {
			delete(w.working, l.RunID)
		}
	}
}

// claimed returns when the job was claimed.
func (w *world) claimed(l queue.Lease) (at time.Time) {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	for _, c := range w.db.claims {
		if c.runID == l.RunID && c.epoch == l.Epoch {
			at = c.at
		}
	}
	return at
}

// holdsLease reports whether the database has a valid lease of the process.
func (w *world) holdsLease(p *process) (holds bool) {
	const sql = "SELECT 1 FROM queue_host WHERE label = $1 AND gone = 0 AND until > $2"
	err := w.db.read(sql, []any{p.name, time.Now().Add(time.Second).UnixNano()}, func(eventlog.Row) error {
		holds = true
		return nil
	})
	if err != nil {
		w.fail("%v", err)
	}
	return holds
}

// heal ends all failures. One more host begins to work, so that there is one.
func (w *world) heal() {
	w.mu.Lock()
	w.faults = faults{latency: time.Millisecond}
	for _, p := range w.processes {
		p.handle.heal()
	}
	w.mu.Unlock()
	w.start("survivor", "", 4)
}

// settle waits until no job is left and all that was to happen has.
func (w *world) settle() {
	w.clients.Wait()
	for waited := time.Duration(0); waited < most; waited += poll {
		time.Sleep(poll)
		w.checkCounts()
		if len(w.rows("SELECT run_id FROM queue_job")) == 0 {
			return
		}
	}
	w.fail("jobs are left: %v", w.rows("SELECT run_id || ' state ' || state || ' attempt ' || attempt || ' owner ' || owner || ' cancelled ' || cancelled FROM queue_job"))
}

// leave stops all processes but the last, lets the leases of those that are gone end, and stops
// the last.
func (w *world) leave() {
	for _, p := range w.processes {
		if p.name != "survivor" {
			p.end(false)
		}
	}
	time.Sleep(5 * lease) // a frozen process may hang for three of them
	if left := w.rows("SELECT label FROM queue_host WHERE gone = 0"); len(left) != 1 || left[0] != "survivor" {
		w.fail("the leases of %v have not ended", left)
	}
	for _, p := range w.processes {
		p.end(false)
	}
	w.background.Wait()
	time.Sleep(2 * lease)
	// A process that stopped while it registered has left a lease that ended by itself.
	if left := w.rows("SELECT label FROM queue_host WHERE gone = 0 AND until >= $1", time.Now().UnixNano()); len(left) > 0 {
		w.fail("%v have left, and their leases have not ended", left)
	}
}

// rows returns the first column of a query.
func (w *world) rows(sql string, args ...any) (list []string) {
	err := w.db.read(sql, args, func(r eventlog.Row) error {
		list = append(list, fmt.Sprint(r.(values)[0]))
		return nil
	})
	if err != nil {
		w.fail("%v", err)
	}
	return list
}

// checkCounts compares the counts of jobs with the jobs. They are right after each transaction.
func (w *world) checkCounts() {
	wrong := w.rows(`SELECT tenant || ' state ' || state || ' is off by ' || sum(n) FROM (
	SELECT tenant, state, -1 AS n FROM queue_job
	UNION ALL SELECT tenant, 0, ready FROM queue_tenant UNION ALL SELECT tenant, 1, sleeping FROM queue_tenant
	UNION ALL SELECT tenant, 2, running FROM queue_tenant UNION ALL SELECT tenant, 3, ending FROM queue_tenant
	UNION ALL SELECT tenant, 0, ready FROM queue_change UNION ALL SELECT tenant, 1, sleeping FROM queue_change
	UNION ALL SELECT tenant, 2, running FROM queue_change UNION ALL SELECT tenant, 3, ending FROM queue_change) c
	GROUP BY tenant, state HAVING sum(n) <> 0`)
	if len(wrong) > 0 {
		w.fail("counts: %v", wrong)
	}
	if twice := w.rows("SELECT host FROM queue_host WHERE host <> '' AND gone = 0 GROUP BY host HAVING count(*) > 1"); len(twice) > 0 {
		w.fail("two processes work as %v", twice)
	}
	for name, l := range w.limits {
		if l.MaxRunning == 0 {
			continue
		}
		// A job whose run was cancelled is handed out to end it, however many others run.
		if n := w.rows("SELECT count(*) FROM queue_job WHERE state = 2 AND cancelled = 0 AND tenant = $1 HAVING count(*) > $2", name, int64(l.MaxRunning)); len(n) > 0 {
			w.fail("%v jobs of %s run, and %d may", n, name, l.MaxRunning)
		}
	}
}

// check compares the end of a schedule with what was promised.
func (w *world) check() {
	w.checkCounts()
	for runID := range w.promised {
		if w.db.runs[runID] == nil {
			w.fail("%s was accepted and is lost", runID)
		}
	}
	for runID := range w.refused {
		if w.db.runs[runID] != nil {
			w.fail("%s was refused and is recorded", runID)
		}
	}
	runs := make(map[string]int)
	for runID, r := range w.db.runs {
		name, _, _ := strings.Cut(runID, "/")
		runs[name]++
		if err := eventlog.Validate(r.events); err != nil {
			w.fail("%s: %v", runID, err)
		}
		ends := 0
		by := make(map[uint64]string) // the host that recorded under an epoch
		for i, ev := range r.events {
			if ev.Kind.Terminal() {
				ends++
			}
			if i > 0 && r.epochs[i] < r.epochs[i-1] || i > 0 && r.epochs[i] == 0 {
				w.fail("%s: event %d is of epoch %d, after %d", runID, i+1, r.epochs[i], r.epochs[i-1])
			}
			if ev.Kind != event.KindSideEffectRecorded {
				continue
			}
			if other, twice := by[r.epochs[i]]; twice {
				w.fail("%s: %s and another handler have recorded in epoch %d", runID, other, r.epochs[i])
			}
			by[r.epochs[i]] = string(ev.Payload)
		}
		if ends != 1 {
			w.fail("%s has %d ends", runID, ends)
		}
	}
	w.checkUsage(runs)
	w.checkClaims()
	w.checkFair()
}

// checkUsage: each run is counted once.
func (w *world) checkUsage(runs map[string]int) {
	const sql = `SELECT tenant || ' ' || sum(runs) || ' ' || sum(fuel) FROM (
	SELECT tenant, runs, fuel FROM queue_usage UNION ALL SELECT tenant, runs, fuel FROM queue_change) u GROUP BY tenant ORDER BY tenant`
	var want []string
	for name, n := range runs {
		want = append(want, fmt.Sprint(name, " ", n, " ", n*fuel))
	}
	slices.Sort(want)
	if have := w.rows(sql); !slices.Equal(have, want) {
		w.fail("usage %q, want %q", have, want)
	}
}

// checkClaims: no job is claimed while its tenant is paused, unless to end its run.
func (w *world) checkClaims() {
	for _, c := range w.db.claims {
		at := c.at.Sub(w.began)
		if strings.HasPrefix(c.runID, "paused/") && at > w.pauseAt && at < w.resumeAt {
			if !w.tried[c.runID] {
				w.fail("%s was handed out at %v, while its tenant was paused", c.runID, at)
			}
		}
	}
}

// checkFair compares the service of tenants that have jobs ready all the time. Their tags are
// equal when the first job is handed out, each job moves one of them on by 1/weight, and the
// lowest is next. So when tenant x is served for the nth time, its tag before, (n-1)/weight, is
// at most that of any other such tenant; and the service of two tenants, each divided by its
// weight, differs by at most one job of either: 1/weight of the one that is ahead. The order is that
// of the claims in all transactions of all hosts, retries included, whatever has failed.
func (w *world) checkFair() {
	served := make(map[string]int)
	weight := func(name string) float64 {
		if w := w.limits[name].Weight; w > 0 {
			return w
		}
		return 1
	}
	for _, c := range w.db.claims {
		name, _, _ := strings.Cut(c.runID, "/")
		if w.bursts[name] == 0 {
			continue
		}
		for other, n := range w.bursts {
			if served[other] >= n { // no job of it may be ready
				return
			}
			tag, others := float64(served[name])/weight(name), float64(served[other])/weight(other)
			if tag > others+1e-9 {
				w.fail("%s is handed out to %s, which was served %d times, before %s, which was served %d times (%v)", c.runID, name, served[name], other, served[other], w.limits)
				return
			}
		}
		served[name]++
	}
}
