package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/agent"
)

// ErrRunNotFound: the log has no such run.
var ErrRunNotFound = eventlog.ErrRunNotFound

// Option changes how a run is verified.
type Option func(*Options)

// WithForceProvider lets an agent of another provider or model verify a run.
// Without it that is [agent.ErrProviderModelMismatch].
func WithForceProvider() Option { return func(o *Options) { o.Force = true } }

// Verify makes a recorded run again with an agent, and returns nil if it is the
// same run, byte for byte, whatever that run came to. A difference is
// [ErrNonDeterminism], and errors.As finds the [*Divergence] in it; an open run is
// followed to its end. The agent's provider is asked nothing and its log is not
// used.
func Verify(ctx context.Context, log eventlog.EventLog, runID string, a *agent.Agent, opts ...Option) error {
	var o Options
	for _, option := range opts {
		option(&o)
	}
	events, err := read(ctx, log, runID)
	if err != nil {
		return err
	}
	return verify(ctx, events, a, o)
}

func read(ctx context.Context, log eventlog.EventLog, runID string) ([]event.Event, error) {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("replay: %w: %q", ErrRunNotFound, runID)
	}
	_, err = check(events)
	return events, err
}

func verify(ctx context.Context, events []event.Event, a *agent.Agent, o Options) error {
	_, err := a.Replay(ctx, events, o.agent())
	verdict, err := Verdict{RunID: events[0].RunID}.with(err)
	if err != nil || verdict.Identical() {
		return err
	}
	return verdict.Divergence
}

// Factory makes an agent for a replay.
type Factory func(ctx context.Context) (*agent.Agent, error)

// Step is one step of a replay that is watched.
type Step struct {
	// Event is the recorded event that the replay has arrived at, and found the
	// same. It is the zero Event in a last step that is not about one.
	Event event.Event

	// Diverged is set in the last step of a replay that is not the recorded run.
	Diverged bool

	// Err says why, a [*Divergence], or what else ended the replay.
	Err error
}

// Stream verifies a run and yields a [Step] for each event, in the order in which
// the replay arrives at them, and one more if the replay differs or fails. The
// channel is closed after that, and when ctx ends. The replay goes at the reader's
// pace.
func Stream(ctx context.Context, factory Factory, log eventlog.EventLog, runID string) (<-chan Step, error) {
	events, err := read(ctx, log, runID)
	if err != nil {
		return nil, err
	}
	a, err := factory(ctx)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	steps := make(chan Step)
	send := func(s Step) {
		select {
		case steps <- s:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(steps)
		o := Options{Matched: func(ev event.Event) { send(Step{Event: ev}) }}
		if err := verify(ctx, events, a, o); err != nil {
			send(Step{Diverged: errors.Is(err, ErrNonDeterminism), Err: err})
		}
	}()
	return steps, nil
}
