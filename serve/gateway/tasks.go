package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// begun is a run that this program is making. As a task, it outlives its request and its session. If the
// program ends first, the run stays open, and the next program goes on with it when the client asks for
// the task.
type begun struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the next two are set
	result mcpsrv.Result // with what became of the files, which the log does not have
	err    error         // of the host, which may have left the run open
}

// claim waits for the lock of a run, which the program that makes the run holds as long as it lives: whoever has
// it may go on with an open run. The error is that of ctx. Without a cache folder that can be written there is
// nothing to lock.
func claim(ctx context.Context, runID string) (release func(), err error) {
	cache := starling.CodeCacheFolder()
	folder := filepath.Join(filepath.Dir(cache), "making")
	if cache == "" || os.MkdirAll(folder, 0o700) != nil {
		return func() {}, nil
	}
	path := filepath.Join(folder, runID)
	unlock, err := await.Do(ctx, func() (func(), error) {
		unlock, err := keyfile.Lock(path)
		if err == nil && ctx.Err() != nil { // nobody waits for it any more
			unlock()
		}
		return unlock, err
	})
	switch {
	case ctx.Err() != nil:
		if unlock != nil {
			unlock()
		}
		return nil, ctx.Err()
	case err != nil:
		return func() {}, nil
	}
	return func() {
		_ = os.Remove(path) // whoever waits for the lock finds the run ended
		unlock()
	}, nil
}

// begin makes a run in the background, unless this program is making it. A run that the host has failed
// to make stays known, and so does one that was to change files.
func (l *Tools) begin(ctx context.Context, runID string, run func(context.Context) (mcpsrv.Result, error)) *begun {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.begun[runID]; b != nil {
		return b
	}
	b := &begun{done: make(chan struct{})}
	ctx, b.cancel = context.WithCancel(ctx)
	l.begun[runID] = b
	go func() {
		defer b.cancel()
		if release, err := claim(ctx, runID); err == nil { // otherwise it was stopped while another program makes the run
			b.result, b.err = run(ctx)
			release()
		}
		close(b.done)
		if b.err == nil && len(b.result.Changed) == 0 && b.result.Unwritten == "" {
			l.forget(runID)
		}
	}()
	return b
}

// Begin implements [mcpsrv.Lasting].
func (l *session) Begin(ctx context.Context, c mcpsrv.Call) (string, error) {
	runID := starling.NewRunID()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	log, err := l.db.Log(ctx)
	if err != nil {
		return "", err
	}
	events, err := log.Stream(watching, runID)
	if err != nil {
		return "", err
	}
	t, leave := l.enter(c.Name)
	if t == nil {
		return "", mcpsrv.ErrNoTool
	}
	b := l.begin(context.WithoutCancel(ctx), runID, func(ctx context.Context) (mcpsrv.Result, error) {
		defer leave()
		return l.run(ctx, runID, t, c)
	})
	select {
	case <-b.done:
		if b.err != nil {
			l.forget(runID)
		}
		return runID, b.err
	case <-events: // the first one
		return runID, nil
	}
}

// forget drops a run that is not being made any more.
func (l *Tools) forget(runID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.begun, runID)
}

// Outcome implements [mcpsrv.Lasting].
func (l *session) Outcome(ctx context.Context, runID string, most time.Duration) (mcpsrv.Outcome, error) {
	l.mu.RLock()
	b := l.begun[runID]
	l.mu.RUnlock()
	if b == nil || most < 0 {
		o, err := l.recorded(ctx, runID)
		if err != nil || o.Status != eventlog.StatusOpen || most < 0 {
			return o, err
		}
		b = l.goOn(context.WithoutCancel(ctx), o)
	}
	late, ended, failed := time.NewTimer(most), false, error(nil)
	defer late.Stop()
	select {
	case <-b.done:
		ended, failed = true, b.err
	case <-ctx.Done():
	case <-late.C:
	}
	o, err := l.recorded(ctx, runID)
	if !ended {
		o.Status = eventlog.StatusOpen // its changes may not be in the folder yet
	} else if o.Status != eventlog.StatusOpen {
		o.End.Changed, o.End.Unwritten = b.result.Changed, b.result.Unwritten
	}
	if err == nil && o.Status == eventlog.StatusOpen && failed != nil { // the host failed, and would do so again
		o.Status, o.End.Error = eventlog.StatusFailed, starling.PlainError(failed)
	}
	return o, err
}

// goOn goes on with a run whose program has ended before it. A call of another server would be made a
// second time: its run ends.
func (l *session) goOn(ctx context.Context, o mcpsrv.Outcome) *begun {
	return l.begin(ctx, o.RunID, func(ctx context.Context) (result mcpsrv.Result, err error) {
		if o, err := l.recorded(ctx, o.RunID); err != nil || o.Status != eventlog.StatusOpen { // its maker has ended it since
			return result, err
		}
		if !o.End.Remote {
			t, leave := l.enter(o.Tool)
			if t == nil {
				return result, mcpsrv.ErrNoTool
			}
			defer leave()
			run, err := t.Continue(ctx, o.RunID)
			if run != nil { // a failure of the tool is its end
				err = nil
			}
			if run != nil && run.Workspace != "" {
				result.Unwritten, err = l.leftBehind(ctx, run)
			}
			return result, err
		}
		log, err := l.db.Log(ctx)
		if err == nil {
			err = agent.Abandon(ctx, log, o.RunID, "the program that called the server has ended")
		}
		return result, err
	})
}

// errAfterwards keeps the changes of a call from the folder.
var errAfterwards = errors.New("the program that was to write its changes back has ended before")

// leftBehind tells a model that a run which another program began has changed files, if it has.
func (l *Tools) leftBehind(ctx context.Context, run *starling.Run) (text string, err error) {
	log, err := l.db.Log(ctx)
	if err != nil {
		return "", err
	}
	events, err := log.Read(ctx, run.ID)
	if err != nil {
		return "", err
	}
	given, left, err := starling.FilesOf(events)
	if err == nil && given != nil && !bytes.Equal(given.Root, left) {
		text = l.unwritten(errAfterwards, run.ID)
	}
	return text, err
}

// recorded returns what the log has of a run that an assistant began. It asks nothing of a server, which may be starting
// or have another tool by now.
func (l *session) recorded(ctx context.Context, runID string) (o mcpsrv.Outcome, err error) {
	log, err := l.db.Log(ctx)
	if err != nil {
		return o, err
	}
	s, err := log.Run(ctx, runID)
	if errors.Is(err, eventlog.ErrRunNotFound) || err == nil && strings.Contains(runID, "/") { // of a tenant
		err = mcpsrv.ErrNoTask
	}
	b, last, remote := span.Builder{Whole: true}, event.SideEffectRecorded{}, map[string]string{}
	for ev, failed := range log.Events(ctx, runID, 0) {
		if err = cmp.Or(err, failed); err != nil {
			return o, err
		}
		if ev.Seq > s.LastSeq {
			break
		}
		if began, err := ev.AsRunStarted(); err == nil {
			if began.Caller == nil || began.Caller.Client == "" {
				return o, mcpsrv.ErrNoTask // of somebody else
			}
			for _, ref := range began.ToolSchemas {
				if name, ok := strings.CutPrefix(ref.Source, mcptool.SourcePrefix); ok {
					remote[ref.Name] = name
				}
			}
		}
		if effect, err := ev.AsSideEffectRecorded(); err == nil {
			last = effect
		}
		_ = b.Add(ev) // the run says what cannot be read
	}
	o.Document = b.Run().Document(s)
	o.End = mcpsrv.Result{RunID: runID, Output: o.Result, Log: o.Log, Replay: l.replayOf(runID)}
	name := remote[o.Tool]
	if t, leave := l.enter(o.Tool); t != nil {
		leave()
	} else if name == "" || strings.Contains(name, "/") || !slices.ContainsFunc(l.servers, func(s *peer) bool { return strings.HasPrefix(o.Tool, s.Name+"_") }) {
		return o, mcpsrv.ErrNoTask // of a tool that this program does not serve, or a method
	}
	if name != "" {
		o.End.Remote = true
		o.End.Answer, o.End.Refused = mcptool.Recorded(name, last)
	}
	if o.Error != nil {
		o.End.Error = o.Tool + ": " + o.Error.Message
	}
	if o.Status != eventlog.StatusOpen {
		o.End.Receipt = l.receipt(ctx, runID)
	}
	return o, nil
}

// Recent implements [mcpsrv.Lasting].
func (l *session) Recent(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	return l.db.Runs(ctx, o)
}

// Stop implements [mcpsrv.Lasting].
func (l *session) Stop(_ context.Context, runID string) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if b := l.begun[runID]; b != nil {
		b.cancel()
	}
	return nil
}

// leave ends the calls in progress and leaves their runs open, because the log takes nothing any more.
func (l *Tools) leave() {
	l.mu.Lock()
	left := slices.Collect(maps.Values(l.begun))
	l.mu.Unlock()
	left = slices.DeleteFunc(left, func(b *begun) bool {
		select {
		case <-b.done:
			return true
		default:
			return false
		}
	})
	if len(left) == 0 {
		return
	}
	if log, err := l.db.Log(context.Background()); err == nil {
		log.Close()
	}
	for _, b := range left {
		b.cancel()
		<-b.done
	}
}
