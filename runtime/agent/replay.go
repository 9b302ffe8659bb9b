package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// ErrProviderModelMismatch is returned for a replay by an agent of another provider or
// model.
var ErrProviderModelMismatch = errors.New("starling: provider or model mismatch")

// ReplayOptions configure a comparison. The zero value compares everything.
type ReplayOptions struct {
	// OtherModule takes RunStarted from the recording and ignores fuel and peak memory, to
	// check whether another version of a tool behaves the same.
	OtherModule bool

	// Force allows an agent of another provider or model to replay the run. Only that
	// identity is taken from the recording.
	Force bool

	// Matched, unless it is nil, is called with each recorded event that the replay has
	// reproduced.
	Matched func(event.Event)
}

// Replay makes a run again with the recording in place of the model, the clock and
// everything that tools request. It does not use Log, Metrics and Tracer. A resumed run is
// followed through all of its processes.
//
// The error is a *[step.MismatchError] if the run differs from the recording,
// [ErrProviderModelMismatch] if it was recorded with another model and o.Force is not set,
// and [step.ErrRecordingEnded] if the run matches a recording without an end. The end of
// the run itself is only in the result.
func (a *Agent) Replay(ctx context.Context, recorded []event.Event, o ReplayOptions) (*Result, error) {
	if len(recorded) == 0 {
		return nil, errors.New("starling: nothing is recorded")
	}
	if err := a.validate(); err != nil {
		return nil, err
	}
	started, err := recorded[0].AsRunStarted()
	if err != nil {
		return nil, err
	}
	if a, err = a.as(recorded, started, o); err != nil {
		return nil, err
	}
	if a, err = a.prepared(ctx, nil, nil); err != nil {
		return nil, err
	}
	var result *Result
	err = step.ErrRecordingEnded
	for from, to := 0, 0; from < len(recorded) && errors.Is(err, step.ErrRecordingEnded); from = to {
		to = len(recorded)
		if seam := slices.IndexFunc(recorded[from+1:], func(ev event.Event) bool { return ev.Kind == event.KindRunResumed }); seam >= 0 {
			to = from + 1 + seam // the part that one process made ends here
		}
		if result, err = a.replaySession(ctx, recorded[:from], recorded[from:to], o); err != nil && result != nil {
			return result, err
		}
	}
	return result, err
}

// as returns the agent for the replay of a run: with the recorded order of tools, and with
// the recorded provider's identity if that is not compared.
func (a *Agent) as(recorded []event.Event, started event.RunStarted, o ReplayOptions) (*Agent, error) {
	if a.direct {
		return a, nil
	}
	a = a.inOrder(recorded, started)
	info := a.info()
	if info.ID == started.ProviderID && info.APIVersion == started.APIVersion && a.Config.Model == started.ModelID {
		return a, nil
	}
	if !o.Force {
		return nil, fmt.Errorf("%w: recorded with %s %s %s, replayed by %s %s %s", ErrProviderModelMismatch,
			started.ProviderID, started.APIVersion, started.ModelID, info.ID, info.APIVersion, a.Config.Model)
	}
	forced := *a
	forced.Provider = unasked{provider.Info{ID: started.ProviderID, APIVersion: started.APIVersion}}
	forced.Config.Model = started.ModelID
	return &forced, nil
}

// replaySession follows the recording through one process.
func (a *Agent) replaySession(ctx context.Context, earlier, recorded []event.Event, o ReplayOptions) (*Result, error) {
	if a.direct {
		again := *a
		a = &again
		var err error
		if a.doc, err = recordedInput(recorded); err != nil {
			return nil, err
		}
	}
	cfg := a.stepConfig(recorded[0].RunID)
	cfg.Mode, cfg.Earlier, cfg.Recorded = step.ModeReplay, earlier, recorded
	cfg.IgnoreMeter, cfg.Matched = o.OtherModule, o.Matched
	if reason, ok := abandoned(recorded); ok {
		return a.replayAbandoned(ctx, cfg, o, reason)
	}
	c, err := step.NewContext(cfg)
	if err != nil {
		return nil, err
	}
	open, err := a.reopen(c, earlier, recorded[0], o)
	if err != nil {
		return nil, err
	}
	result, err := a.drive(step.WithContext(ctx, c), c, open, time.Time{})
	if wrong := c.Finish(); wrong != nil {
		return result, wrong
	}
	if result != nil {
		return result, nil // the end of the run is not an error of the replay
	}
	return nil, err
}

// reopen returns the function that begins the session again.
func (a *Agent) reopen(c *step.Context, earlier []event.Event, first event.Event, o ReplayOptions) (func(context.Context) (*conversation, error), error) {
	if len(earlier) == 0 {
		started, err := a.startedAs(first, o)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (*conversation, error) {
			return a.begin(started.Goal), step.Emit(ctx, c, event.KindRunStarted, started)
		}, nil
	}
	seam, err := first.AsRunResumed()
	if err != nil {
		return nil, err
	}
	r := resumption{earlier: earlier, message: seam.ExtraMessage, reissue: seam.ReissueTools, seam: true}
	if a.direct {
		r.message, r.reissue = "", true
	}
	talk, err := a.recallFor(r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*conversation, error) { return talk, r.open(ctx, c, talk) }, nil
}

// startedAs returns the RunStarted that the agent would write for a run recorded with that
// first event.
func (a *Agent) startedAs(first event.Event, o ReplayOptions) (event.RunStarted, error) {
	recorded, err := first.AsRunStarted()
	if err != nil || o.OtherModule {
		return recorded, err
	}
	return a.started(recorded.Goal), nil
}

// unasked is a provider that has an identity and is never asked.
type unasked struct{ info provider.Info }

// Info implements [provider.Provider].
func (u unasked) Info() provider.Info { return u.info }

// Stream implements [provider.Provider].
func (unasked) Stream(context.Context, *provider.Request) (provider.EventStream, error) {
	return nil, errors.New("starling: this provider exists to be replayed")
}

// FromRecord reconstructs the agent of a recorded run from the log, for a replay, which
// needs no provider. The caller finds the tools; their order does not matter.
func FromRecord(started event.RunStarted, tools []tool.Tool) *Agent {
	a := &Agent{
		Provider: unasked{provider.Info{ID: started.ProviderID, APIVersion: started.APIVersion}},
		Tools:    tools,
		Budget:   budget.FromEvent(started.Budget),
		Config: Config{
			Model: started.ModelID, SystemPrompt: started.SystemPrompt,
			MaxTurns: int(started.MaxTurns), AppVersion: started.AppVersion,
			Retries: map[string]tool.RetryConfig{},
		},
	}
	if len(started.ParamsHash) > 0 {
		a.Config.Params = started.Params
	}
	if o := started.Request; o != nil {
		a.Config.ToolChoice, a.Config.StopSequences, a.Config.MaxOutputTokens = o.ToolChoice, o.StopSequences, int(o.MaxOutputTokens)
		if o.TopK != nil {
			k := int(*o.TopK)
			a.Config.TopK = &k
		}
	}
	for _, ref := range started.ToolSchemas {
		if ref.InCode {
			a.Config.InCode = append(a.Config.InCode, ref.Name)
		}
		if ref.Attempts > 0 {
			a.Config.Retries[ref.Name] = tool.RetryConfig{MaxAttempts: int(ref.Attempts)}
		}
	}
	return a
}
