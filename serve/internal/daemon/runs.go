package daemon

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// Bounds of pages.
const (
	defaultRuns, mostRuns     = 50, 200
	defaultEvents, mostEvents = 200, 1000
)

// list is a page of a listing.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`  // the cursor of the next page
	Total *int   `json:"total,omitempty"` // on all pages
}

func (d *Daemon) listRuns(r *request) (page list[eventview.RunDocument], err error) {
	p := r.query
	o := eventlog.RunPageOptions{
		Limit: p.limit(defaultRuns, mostRuns), Query: p.text("q"), StartedAfter: p.time("since"), Status: p.text("status"),
	}
	if o.Valid() != nil {
		p.fail("status", "status is completed, failed, cancelled or open")
	}
	at, ok := parseCursor(p.text("cursor"), listing(r.view, o))
	if !ok {
		p.fail("cursor", "the cursor does not belong to this listing")
	}
	if p.err != nil {
		return page, p.err
	}
	runs, next, total, err := at.page(r.Context(), r.view, o)
	if err != nil {
		return page, err
	}
	return list[eventview.RunDocument]{Items: r.view.Describe(r.Context(), lists.Map(runs, span.Summarize)...), Next: next, Total: &total}, nil
}

// find returns the run of the tenant that a request names. It does not look up text that is not a
// run id.
func (d *Daemon) find(r *request) (eventlog.RunSummary, error) {
	id := r.PathValue("id")
	if !ulid().MatchString(id) {
		return eventlog.RunSummary{}, notFound.plain()
	}
	return r.view.Run(r.Context(), id)
}

func (d *Daemon) getRun(r *request) (*eventview.RunDocument, error) {
	s, err := d.find(r)
	if err != nil {
		return nil, err
	}
	return d.currentRun(r, s.RunID)
}

// currentRun returns the document of a run as it is now, with its position in the queue.
func (d *Daemon) currentRun(r *request, id string) (*eventview.RunDocument, error) {
	doc, err := describeRun(r.Context(), r.view, id)
	if err != nil {
		return nil, err
	}
	return doc, d.place(r.Context(), r.tenant.ID, doc)
}

// place adds the state in the queue of a run that has not ended and, if it waits, its place among
// the runs of the tenant. Runs of other tenants do not count, since that would reveal how busy they
// are. It is for requests for one run, since counting takes longer the more runs wait.
func (d *Daemon) place(ctx context.Context, tenantID string, doc *eventview.RunDocument) error {
	if doc.Status != eventlog.StatusOpen {
		return nil
	}
	s, err := d.config.Queue.Find(ctx, fullID(tenantID, doc.RunID))
	if errors.Is(err, queue.ErrNotFound) { // it has ended since
		return nil
	}
	if err != nil {
		return err
	}
	state := s.Shown()
	if doc.Job = &state; doc.Waiting && state.State == queue.Waiting {
		doc.Position = s.Position + 1
	}
	return nil
}

// listEvents writes a page of the events of a run, each as event.ToJSON writes it, as they
// are read. "next" is the value of "after" for the next page, and "total" how many there are.
func (d *Daemon) listEvents(w http.ResponseWriter, r *request) error {
	p := r.query
	after, limit := p.number("after", 0, math.MaxInt64), p.limit(defaultEvents, mostEvents)
	if p.err != nil {
		return p.err
	}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	var next uint64
	count, size := 0, 0
	return writeEvents(w, r, s.RunID, after, func(out *bufio.Writer, ev event.Event, line []byte) bool {
		separator := byte(',')
		if count == 0 {
			_, _ = out.WriteString(`{"items":`)
			separator = '['
		}
		_ = out.WriteByte(separator)
		_, _ = out.Write(line)
		count, size = count+1, size+len(line)
		if count < limit && size <= maxPage {
			return true
		}
		if next = ev.Seq; next == s.LastSeq {
			next = 0
		}
		return false
	}, func(out *bufio.Writer) {
		if count == 0 {
			_, _ = out.WriteString(`{"items":[`)
		}
		_ = out.WriteByte(']')
		if next > 0 {
			fmt.Fprintf(out, `,"next":%d`, next)
		}
		fmt.Fprintf(out, `,"total":%d}`+"\n", s.LastSeq)
	})
}

// maxPage is from how many bytes on a page of events ends before its limit.
const maxPage = 8 << 20

// writeEvents writes events of a run as they are read, as long as one returns true, and then the
// end. If an error occurs after the client has received events, the connection is cut, so that the
// client does not mistake them for the whole run.
func writeEvents(w http.ResponseWriter, r *request, id string, after uint64, one func(out *bufio.Writer, ev event.Event, line []byte) bool, end func(out *bufio.Writer)) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for ev, err := range r.view.Events(r.Context(), id, after) {
		var line []byte
		if err == nil {
			line, err = event.ToJSON(ev)
		}
		if err != nil && w.(*answer).status == 0 {
			w.Header().Del("Content-Disposition")
			return err
		} else if err != nil {
			panic(http.ErrAbortHandler)
		}
		if !one(out, ev, line) {
			break
		}
	}
	end(out)
	_ = out.Flush() // the client may have gone
	return nil
}

// exportRun writes all events that a run has, in the form of "starling-host export".
func (d *Daemon) exportRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(s.RunID+".ndjson"))
	return writeEvents(w, r, s.RunID, 0, func(out *bufio.Writer, _ event.Event, line []byte) bool {
		_, _ = out.Write(line)
		return out.WriteByte('\n') == nil
	}, func(*bufio.Writer) {})
}

// cancelRun has a run end. A run that no worker has is ended by the next free one.
func (d *Daemon) cancelRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if s.TerminalKind != 0 {
		return alreadyEnded.because("the run is %s", s.Status())
	}
	share.Of(r.Context()).Rest()
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	err = d.config.Queue.Cancel(ctx, fullID(r.tenant.ID, s.RunID))
	if errors.Is(err, queue.ErrNotFound) { // it has ended since
		return alreadyEnded.plain()
	}
	if err != nil {
		return err
	}
	doc, err := d.currentRun(r, s.RunID)
	if err == nil {
		writeJSON(w, http.StatusAccepted, doc)
	}
	return err
}

// describeRun returns the current document of a run, from the events that its summary has counted.
func describeRun(ctx context.Context, view eventview.View, id string) (*eventview.RunDocument, error) {
	s, err := view.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := view.Reserve(ctx, id); err != nil {
		return nil, err
	}
	doc, err := span.Read(ctx, view, s)
	if err == nil && doc.Encrypted {
		err = event.ErrEncrypted
	}
	return &eventview.RunDocument{Document: doc}, err
}

// outcome returns the document of a run that was accepted when it has ended, or after a
// time.
func (d *Daemon) outcome(ctx context.Context, view eventview.View, id string, most time.Duration) (doc *eventview.RunDocument, err error) {
	doc, err = d.await(ctx, view, id, most)
	if doc == nil && (err == nil || errors.Is(err, context.Canceled)) { // a client that closed its sending side may still read
		doc, err = describeRun(context.WithoutCancel(ctx), view, id)
	}
	if err != nil { // the end of an erased tenant's run, for one, is there and cannot be read
		err = cmp.Or(d.checkStillExists(ctx, view, id), err)
	}
	if errors.Is(err, eventlog.ErrRunNotFound) {
		return nil, removed.because("run %s was accepted and later removed", id)
	}
	return doc, err
}

// firstBeat is when a wait first checks that the run still exists. Earlier is no use: most
// often the run was accepted just now.
const firstBeat = time.Second

// await returns the document of a run when it has ended, built from its events as they arrive, or
// nil after a time: a run that continues is not an error.
func (d *Daemon) await(parent context.Context, view eventview.View, id string, most time.Duration) (*eventview.RunDocument, error) {
	if most <= 0 {
		return nil, nil
	}
	ctx, stop := d.whileServing(parent)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	events, err := view.Log.Stream(ctx, fullID(view.Namespace, id))
	if err != nil {
		return nil, err
	}
	beat := time.NewTimer(min(firstBeat, d.config.Heartbeat))
	defer beat.Stop()
	b, at, held := span.Builder{Whole: true}, eventlog.Cursor{}, 0
	for {
		share.Of(ctx).Rest()
		select {
		case ev, more := <-events:
			if !more {
				return nil, parent.Err()
			}
			at.Count(ev)
			if err := b.Add(ev); err != nil || b.Run().Encrypted {
				return nil, cmp.Or(err, event.ErrEncrypted)
			}
			need := 0
			if len(ev.Payload) > guest.SmallBytes { // the response will contain it
				need = share.Event * len(ev.Payload)
			}
			if grown := b.Run().Size() - held; grown > guest.SmallBytes {
				held, need = held+grown, need+grown
			}
			if need > 0 {
				err := share.Hold(ctx, int64(need))
				if err == nil {
					err = share.Step(ctx)
				}
				if err != nil {
					return nil, err
				}
			}
			if ev.Kind.Terminal() {
				s := at.Run()
				s.RunID = id
				return &eventview.RunDocument{Document: b.Run().Document(s)}, nil
			}
		case <-beat.C:
			if err := d.checkStillExists(ctx, view, id); err != nil {
				return nil, err
			}
			beat.Reset(d.config.Heartbeat)
		}
	}
}

// checkStillExists returns an error if a wait for a run should end although no event says
// so: the run was removed, or its tenant may not see it any more.
func (d *Daemon) checkStillExists(ctx context.Context, view eventview.View, id string) error {
	t, err := d.config.Tenants.Tenant(ctx, view.Namespace)
	if err == nil && (t.Suspended || !t.Erased.IsZero()) {
		return noKey()
	}
	if _, err = view.Run(ctx, id); errors.Is(err, eventlog.ErrRunNotFound) {
		return err
	}
	return nil // or the database does not answer, which passes
}

// cursor is the position at the end of a page of a listing: the runs that began at the same time as
// its last one. So the next page continues after it, whatever runs have begun, ended or been
// removed since.
type cursor struct {
	Started int64    `json:"t"` // of the last run on the page
	RunIDs  []string `json:"r"` // of the runs on this page and earlier ones that began then
}

// listing identifies the listing of a page, so that a cursor is valid only for the same listing.
func listing(view eventview.View, o eventlog.RunPageOptions) string {
	return fmt.Sprintf("%q %q %q %d", view.Namespace, o.Status, o.Query, eventlog.Nanos(o.StartedAfter))
}

// checkBytes is the length of the hash that a cursor begins with: of the rest and its
// listing. It catches mistakes and protects nothing: a client that computes one
// gets a page of its own runs.
const checkBytes = 8

func (c cursor) String(listing string) string {
	b, _ := json.Marshal(c) // a number and texts
	check := canon.Sum([]byte(listing), b)
	return base64.RawURLEncoding.EncodeToString(append(check[:checkBytes], b...))
}

// parseCursor reads what String has written for the same listing.
func parseCursor(text, listing string) (c cursor, ok bool) {
	if text == "" {
		return c, true
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < checkBytes || json.Unmarshal(b[checkBytes:], &c) != nil || c.String(listing) != text {
		return cursor{}, false
	}
	return c, true
}

// page returns the runs after the cursor, and the cursor after them: empty at the end.
func (c cursor) page(ctx context.Context, view eventview.View, o eventlog.RunPageOptions) (runs []eventlog.RunSummary, next string, total int, err error) {
	want, of := o.Limit, listing(view, o)
	o.Limit = want + 1 + len(c.RunIDs) // one more, to find out whether more follow
	if len(c.RunIDs) > 0 {
		o.From = time.Unix(0, c.Started)
	}
	p, err := view.Runs(ctx, o)
	runs = slices.DeleteFunc(p.Runs, func(s eventlog.RunSummary) bool { return slices.Contains(c.RunIDs, s.RunID) })
	if err != nil || len(runs) <= want {
		return runs, "", p.TotalMatching, err
	}
	runs = runs[:want]
	for _, run := range runs {
		if at := run.StartedAt.UnixNano(); at != c.Started {
			c = cursor{Started: at}
		}
		c.RunIDs = append(c.RunIDs, run.RunID)
	}
	return runs, c.String(of), p.TotalMatching, nil
}

// replayRun executes a run again, offline, and reports whether it is the same.
func (d *Daemon) replayRun(r *request) (doc agent.ReplayDocument, err error) {
	s, err := d.find(r)
	if err != nil {
		return doc, err
	}
	v, err := r.view.Replay(r.Context(), s.RunID)
	doc = v.Document(s.RunID)
	if corrupt, ok := errors.AsType[*eventlog.CorruptError](err); ok {
		doc.Verdict, doc.Error = agent.Invalid, corrupt.Error()
		return doc, nil
	}
	if e, ok := errors.AsType[*guest.RecordedError](err); ok {
		return doc, notReplayable.because("%s", e.Reason)
	}
	if e, ok := errors.AsType[*agent.UnsupportedError](err); ok {
		return doc, notReplayable.because("%s", e.Reason)
	}
	if errors.Is(err, eventlog.ErrModuleNotFound) {
		return doc, notReplayable.because("its module is not in the log")
	}
	return doc, err
}

// execute is the Executor of a tenant's view. The modules are executed where those of tenants are
// always executed, but by the machine.
func (d *Daemon) execute(ctx context.Context, t tenant.Tenant, log eventlog.EventLog, o eventview.Execution) (x eventview.Executor, err error) {
	var other []byte
	if o.Module != "" {
		digest, err := hex.DecodeString(o.Module)
		if err != nil || len(digest) != len(canon.Hash{}) {
			return x, eventlog.ErrModuleNotFound
		}
		if other, err = d.config.Log.Module(ctx, canon.Hash(digest)); err != nil {
			return x, err
		}
	}
	engine, done, err := d.config.Isolated.Observed(ctx, o.Observers)
	if err != nil {
		return x, err
	}
	modules := &share.Modules{ModuleReader: d.config.Log}
	recorded := guest.NewRecorded(engine, modules, other, agentfile.Offline)
	x.Close = func() {
		recorded.Close()
		done()
		modules.Give()
	}
	x.Replay = func(ctx context.Context, runID string) (agent.Verdict, error) {
		share.Of(ctx).Keep(0) // of the run before
		return d.replay(ctx, t, log, runID, recorded, agent.ReplayOptions{OtherModule: other != nil})
	}
	return x, nil
}

// replayInSlot is the Replayer of a tenant's view.
func (d *Daemon) replayInSlot(ctx context.Context, t tenant.Tenant, log eventlog.EventLog, runID string) (agent.Verdict, error) {
	ctx, end := share.Aside(ctx)
	defer end()
	if err := share.Reserve(ctx, true, runID); err != nil { // before the slot, which is short of supply
		return agent.Verdict{}, err
	}
	patient, cancel := context.WithTimeoutCause(ctx, slotWait, busy.because("no slot to replay the run was free within %s", slotWait).retry(2*time.Second))
	defer cancel()
	leave, err := enter(patient, d.replays, t, max(1, d.config.Requests.Replays/2))
	if err != nil {
		return agent.Verdict{}, cmp.Or(context.Cause(patient), err)
	}
	defer leave()
	return d.replay(ctx, t, log, runID, d.recorded, agent.ReplayOptions{})
}

// replay executes a run again and compares. It takes no slot, since a page may let it take minutes;
// the web view bounds how many of those there are.
func (d *Daemon) replay(ctx context.Context, t tenant.Tenant, log eventlog.EventLog, runID string, recorded *guest.RecordedModules, o agent.ReplayOptions) (agent.Verdict, error) {
	if err := d.takesWork(); err != nil {
		return agent.Verdict{}, err
	}
	if err := share.Reserve(ctx, true, runID); err != nil {
		return agent.Verdict{}, err
	}
	if _, err := eventlog.CheckRun(ctx, log, runID, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		return agent.Verdict{}, err
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		return agent.Verdict{}, err
	}
	ctx, stop := d.whileServing(guest.WithClaim(ctx, claimOf(t)))
	defer stop()
	share.Of(ctx).Rest() // its calls take slots of their own
	lease := recorded.Lease()
	defer lease.Release()
	return agent.Replay(ctx, events, lease.Resolve, o)
}
