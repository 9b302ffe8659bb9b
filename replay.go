package starling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/tool"
)

// ReplayOptions configure a replay. The zero value replays each run as recorded.
type ReplayOptions struct {
	// Module is the name of another version of the tool, to compare its behaviour on the
	// same input and answers. Fuel and memory are then not compared.
	Module string

	// AgentFile is the file of an agent, to compare its current behaviour with the record.
	AgentFile string
	// Force replays a run by an agent of another provider or model.
	Force bool

	// Tools are the Go functions of this program that runs used: a record has their names,
	// but not their code.
	Tools []tool.Tool

	// Timeout bounds the replay of each run. Zero means no bound.
	Timeout time.Duration

	// Engine chooses the engine for the modules, in this process.
	Engine EngineOptions

	// Execute, unless it is nil, replays in place of Engine. Module and AgentFile must be
	// empty.
	Execute Executor
}

// Executor replays the events of a run, with the modules of a store. Replays call it
// concurrently.
type Executor func(ctx context.Context, events []event.Event, modules eventlog.ModuleReader) (agent.Verdict, error)

// Verdict is the outcome of one replay.
type Verdict struct {
	agent.Verdict

	RunID   string
	Corrupt error // why the log is not valid; then nothing was executed
	Refused error // why the run cannot be executed
	Erased  bool  // since the key of its tenant was destroyed
}

// Identical reports whether the replay reproduced every recorded event byte for byte.
func (v Verdict) Identical() bool {
	return v.Corrupt == nil && v.Refused == nil && v.Divergence == nil
}

// String summarizes the verdict in one line.
func (v Verdict) String() string {
	switch {
	case v.Corrupt != nil:
		return "invalid: " + eventlog.Corruption(v.Corrupt)
	case errors.Is(v.Refused, sandbox.ErrTooDeep):
		return fmt.Sprintf("not decided: run %s: %s", v.RunID, PlainError(v.Refused))
	case v.Refused != nil:
		return fmt.Sprintf("not replayed: run %s: %s", v.RunID, PlainError(v.Refused))
	case v.Divergence != nil:
		return v.Divergence.Error()
	case v.Open:
		return fmt.Sprintf("identical: %s of an open run", display.Plural(v.Verdict.Events, "event"))
	}
	return fmt.Sprintf("identical: %s", display.Plural(v.Verdict.Events, "event"))
}

// Document returns the JSON document of "starling-host replay -o json".
func (v Verdict) Document() agent.ReplayDocument {
	doc := v.Verdict.Document(v.RunID)
	switch {
	case v.Corrupt != nil:
		doc.Verdict, doc.Error = agent.Invalid, eventlog.Corruption(v.Corrupt)
	case errors.Is(v.Refused, sandbox.ErrTooDeep):
		doc.Verdict, doc.Error = agent.NotDecided, PlainError(v.Refused)
	case v.Refused != nil:
		doc.Verdict, doc.Error = agent.NotReplayed, PlainError(v.Refused)
	}
	return doc
}

// Replay executes a run again with its log in place of the world, and compares every event.
// It uses no network, clock or randomness, and records nothing. [DB.Find] resolves the name
// of the run. If the run used Go functions as tools, pass them in [ReplayOptions.Tools].
//
// The verdict reports an invalid run or a difference. An error means that there is no
// verdict, for instance because the run cannot be executed.
func (db *DB) Replay(ctx context.Context, run string, tools ...tool.Tool) (Verdict, error) {
	id, err := db.Find(ctx, run)
	if err != nil {
		return Verdict{}, err
	}
	var r *Replayer
	if len(tools) > 0 {
		if r, err = db.Replayer(ctx, ReplayOptions{Tools: tools}); err == nil {
			defer r.Close()
		}
	} else {
		db.replaying.Lock()
		if db.replays == nil {
			db.replays, err = db.Replayer(ctx, ReplayOptions{})
		}
		r = db.replays
		db.replaying.Unlock()
	}
	if err != nil {
		return Verdict{}, err
	}
	v, err := r.Replay(ctx, id)
	if err == nil && v.Refused != nil {
		err = fmt.Errorf("run %s cannot be replayed: %w", id, v.Refused)
	}
	return v, err
}

// Replayer replays runs of one database. It keeps their modules until it is closed. It is
// safe for concurrent use.
type Replayer struct {
	// Absent has the errors of unreachable MCP servers of [ReplayOptions.AgentFile]. The
	// record of each run describes their tools.
	Absent []error

	db      *DB
	o       ReplayOptions
	engine  lazyEngine
	store   eventlog.ModuleReader
	other   []byte // replaces every recorded module; nil for none
	modules *guest.RecordedModules
	checks  *moduleChecks
	agent   *Agent // nil: as recorded in the log
}

// Replayer returns a replayer. It must be closed.
func (db *DB) Replayer(ctx context.Context, o ReplayOptions) (*Replayer, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return nil, err
	}
	checks := newModuleChecks(log)
	r := &Replayer{db: db, o: o, engine: lazyEngine{o: o.Engine}, store: modules{checks}, checks: checks}
	if o.Execute != nil {
		return r, nil
	}
	if o.Module != "" {
		source, err := db.Source(ctx, o.Module)
		if err != nil {
			return nil, err
		}
		r.other = source.Wasm
	}
	started, err := r.engine.start(ctx)
	if err != nil {
		return nil, err
	}
	r.modules = guest.NewRecorded(started, r.store, r.other, agentfile.Offline)
	if o.AgentFile != "" {
		if r.agent, err = openReplayingAgent(ctx, o.AgentFile, started, db, r.store); err != nil {
			r.Close()
			return nil, err
		}
		r.Absent = r.agent.box.Absent
	}
	return r, nil
}

// Close releases the engine and the modules.
func (r *Replayer) Close() {
	if r.agent != nil {
		r.agent.box.Close()
	}
	if r.modules != nil {
		r.modules.Close()
	}
	r.engine.close()
}

// Replay checks and replays the run of an id, see [DB.Replay].
func (r *Replayer) Replay(ctx context.Context, id string) (Verdict, error) {
	v := Verdict{RunID: id}
	log, err := r.db.Log(ctx)
	if err != nil {
		return v, err
	}
	checked, err := r.checks.validate(ctx, log, id)
	switch {
	case err != nil:
		return v, err
	case errors.Is(checked.Err, eventlog.ErrSchemaTooNew):
		v.Refused = checked.Err
		return v, nil
	case checked.Err != nil:
		v.Corrupt = checked.Err
		return v, nil
	}
	events, err := log.Read(ctx, id)
	switch {
	case eventlog.IsVerdict(err):
		v.Corrupt = err
		return v, nil
	case err != nil:
		return v, &UnreadError{id, err}
	}
	v.Verdict, err = r.execute(ctx, events)
	unread, isUnread := errors.AsType[unreadModule](err)
	switch {
	case ctx.Err() != nil:
		return v, ctx.Err()
	case isUnread:
		return v, &UnreadError{id, unread.error}
	case errors.Is(err, eventlog.ErrLogCorrupt):
		v.Corrupt = err
	case errors.Is(err, event.ErrEncrypted) && decrypting(log) != nil && decrypting(log).Erased(ctx, id):
		v.Refused, v.Erased = errors.New("its tenant was erased, so it cannot be read"), true
	case err != nil:
		v.Refused = err
	}
	return v, nil
}

// modules reads the modules of recorded runs, and wraps database errors in unreadModule.
type modules struct{ eventlog.ModuleReader }

func (m modules) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	wasm, err := m.ModuleReader.Module(ctx, digest)
	if err != nil && !eventlog.IsVerdict(err) {
		err = unreadModule{err}
	}
	return wasm, err
}

// unreadModule is a failure to read the database; the module itself may be fine.
type unreadModule struct{ error }

// ReplayAll replays the runs with these ids on all processors, and calls found with each
// verdict, in order. The first error ends it.
func (r *Replayer) ReplayAll(ctx context.Context, ids []string, found func(Verdict) error) error {
	return inOrder(ctx, ids, r.Replay, found)
}

// execute executes a run again, within the timeout.
func (r *Replayer) execute(ctx context.Context, events []event.Event) (v agent.Verdict, err error) {
	ctx, cancel := within(ctx, r.o.Timeout)
	defer cancel()
	if r.o.Execute != nil {
		v, err = r.o.Execute(ctx, events, r.store)
	} else {
		v, err = r.inProcess(ctx, events)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && v.Divergence != nil { // a replay cannot reproduce fields of a newer version
		r, invalid := eventlog.Check(events, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		if invalid == nil && r.Unknown != "" {
			v, err = agent.Verdict{}, &agent.UnsupportedError{RunID: events[0].RunID, Seq: 1, Reason: "it has fields that are not known here: " + r.Unknown}
		}
	}
	return v, err
}

// inProcess executes a run again on the engine in this process.
func (r *Replayer) inProcess(ctx context.Context, events []event.Event) (agent.Verdict, error) {
	lease := r.modules.Lease()
	defer lease.Release()
	o := agent.ReplayOptions{OtherModule: r.other != nil, Force: r.o.Force}
	if r.agent == nil {
		return agent.Replay(ctx, events, func(ctx context.Context, ref event.ToolSchemaRef) (tool.Tool, error) {
			native := func(t tool.Tool) bool { return ref.Sandbox == nil && t.Name() == ref.Name }
			if i := slices.IndexFunc(r.o.Tools, native); i >= 0 {
				return r.o.Tools[i], nil
			}
			return lease.Resolve(ctx, ref)
		}, o)
	}
	now, err := r.agent.replaying(ctx, events, lease.Resolve)
	if err != nil {
		return agent.Verdict{}, err
	}
	return agent.ReplayAs(ctx, events, now, o)
}

// within bounds the time of replays; 0 is no bound.
func within(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	if after <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, after, &replayTimeout{after})
}

type replayTimeout struct{ after time.Duration }

func (e *replayTimeout) Error() string {
	return fmt.Sprintf("stopped after %v, the --timeout", e.after)
}
func (e *replayTimeout) Is(target error) bool { return target == ErrReplayTimeout }

// Symbols returns the names of the functions that a replay of the run executes. The error is
// [eventlog.ErrModuleNotFound] if the run does not use a module.
func (r *Replayer) Symbols(ctx context.Context, id string) (*guest.Symbols, error) {
	log, err := r.db.Log(ctx)
	if err != nil {
		return nil, err
	}
	for first, err := range log.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		started, err := first.AsRunStarted()
		if err != nil {
			return nil, err
		}
		if digests, err := first.Modules(); err != nil || len(digests) == 0 {
			return nil, cmp.Or(err, eventlog.ErrModuleNotFound)
		}
		return guest.NewSymbols(ctx, started, r.store, r.other), nil
	}
	return nil, eventlog.ErrModuleNotFound
}

// inOrder applies work to each id on one goroutine per processor, and calls done with the
// results in the order of the ids, on the caller's goroutine. The first error of either
// ends it.
func inOrder[T any](ctx context.Context, ids []string, work func(context.Context, string) (T, error), done func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		value T
		err   error
	}
	results := lists.Map(ids, func(string) chan outcome { return make(chan outcome, 1) })
	var taken atomic.Int64
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for range min(runtime.GOMAXPROCS(0), len(ids)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(taken.Add(1)) - 1
				if i >= len(ids) {
					return
				}
				value, err := work(ctx, ids[i])
				results[i] <- outcome{value, err}
			}
		})
	}
	for i := range ids {
		select {
		case r := <-results[i]:
			if r.err != nil {
				return r.err
			}
			if err := done(r.value); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
