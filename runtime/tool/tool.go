package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
)

// Tool is a function that an agent can call. Implementations must be safe for concurrent
// use.
type Tool interface {
	// Name identifies the tool within one agent and in the log.
	Name() string

	// Description describes the purpose of the tool to a model.
	Description() string

	// Schema is the JSON Schema of the input.
	Schema() json.RawMessage

	// Execute runs the tool. The input is canonical JSON and belongs to the tool, which may
	// modify it without affecting the log. An empty result stands for null. A tool that reads
	// a clock, draws randomness or touches the world does so through package step, with this
	// ctx.
	Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

// Sandboxed is a tool that can reach the world only through recorded effects.
// The runtime relies on that: it lets a sandboxed tool start before the log is
// known to be durable, because the first effect waits for it.
type Sandboxed interface {
	Tool

	// Sandbox returns everything that determines the tool's output beside its input and its
	// effects. It must not change while the tool is in use. Nil means that the tool is not
	// sandboxed.
	Sandbox() *event.Sandbox
}

// Wrapper is a tool around another tool.
type Wrapper interface {
	Tool

	// Unwrap returns the inner tool.
	Unwrap() Tool
}

// SandboxOf returns the sandbox of t, or of the tool that t wraps, or nil.
func SandboxOf(t Tool) *event.Sandbox {
	if s, ok := Inside[Sandboxed](t); ok {
		return s.Sandbox()
	}
	return nil
}

// Inside returns t, or the outermost of the tools that it wraps, that is a T.
func Inside[T Tool](t Tool) (found T, ok bool) {
	for t != nil {
		if found, ok = t.(T); ok {
			return found, true
		}
		w, wraps := t.(Wrapper)
		if !wraps {
			break
		}
		t = w.Unwrap()
	}
	return found, false
}

// The classes of failure are those of package abi, which the sandbox shares.
var (
	ErrPanicked  = abi.ErrPanicked
	ErrTransient = abi.ErrTransient
	ErrTimeout   = abi.ErrTimeout
	ErrCancelled = abi.ErrCancelled
	ErrFuel      = abi.ErrFuel
	ErrLimit     = abi.ErrLimit
	ErrMemory    = abi.ErrMemory
	ErrEffects   = abi.ErrEffects
	ErrLost      = abi.ErrLost
	ErrHost      = abi.ErrHost
)

// Recover turns a panic into an error that wraps [ErrPanicked], and the
// panic's value when that is an error. The text has no stack, so that the same
// panic is the same text on replay. It must be deferred directly:
//
//	defer tool.Recover(&err)
func Recover(err *error) {
	switch v := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("%w: %w", ErrPanicked, v)
	default:
		*err = fmt.Errorf("%w: %v", ErrPanicked, v)
	}
}

// Sourced is a tool with a recorded name by which a replay can find it, even where the tool
// was never set up.
type Sourced interface {
	Tool

	// Source is a kind and a name, such as "builtin:fetch" or "mcp:search".
	Source() string
}

// SourceOf returns the source of t, or of the tool that t wraps, or "".
func SourceOf(t Tool) string {
	if s, ok := Inside[Sourced](t); ok {
		return s.Source()
	}
	return ""
}

// WithSource returns t with a source.
func WithSource(t Tool, source string) Tool { return sourced{t, source} }

type sourced struct {
	Tool
	source string
}

// Source implements [Sourced].
func (s sourced) Source() string { return s.source }

// Unwrap implements [Wrapper].
func (s sourced) Unwrap() Tool { return s.Tool }

// SourceExport begins the source of a tool that has another name in its module.
const SourceExport = "export:"

// Rename returns t under another name. If t has no source, its source becomes its old name.
func Rename(t Tool, name string) Tool {
	source := cmp.Or(SourceOf(t), SourceExport+t.Name())
	return renamed{sourced{t, source}, name}
}

type renamed struct {
	sourced
	name string
}

// Name implements [Tool].
func (r renamed) Name() string { return r.name }

// Guard decides whether a call may be made, by the tool's name in the run and the arguments
// in canonical form, which it must not modify. It returns no verdicts if no policy applies. It
// must be safe for concurrent use, and fast.
type Guard func(ctx context.Context, name string, input json.RawMessage) event.Verdicts

// Guarded returns t with a guard that must allow its calls. Package step asks the guard
// before the tool begins, and records its verdicts; a replay does not ask. Inside
// a wrapper that changes Execute, such as one of [Wrap], the tool cannot be called.
func Guarded(t Tool, g Guard) Tool { return &guarded{t, g} }

// Unguard returns the tool that carries out the calls of t, and the guards of t, the innermost first.
// It looks into guards, other names and sources, which do not change what a call does.
func Unguard(t Tool) (inner Tool, guards []Guard) {
	switch w := t.(type) {
	case *guarded:
		inner, guards = Unguard(w.Tool)
		return inner, append(guards, w.guard)
	case sourced:
		return Unguard(w.Tool)
	case renamed:
		return Unguard(w.Tool)
	}
	return t, nil
}

type guarded struct {
	Tool
	guard Guard
}

var errUnguarded = errors.New("tool: a guarded tool was called without its guard being asked")

// Execute fails, because its caller has not asked the guard.
func (g *guarded) Execute(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, ToolCancel(errUnguarded)
}

// Unwrap returns the tool inside.
func (g *guarded) Unwrap() Tool { return g.Tool }

// Middleware returns a function that wraps or replaces inner.
type Middleware func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error)

// Wrap returns t with middleware around its Execute. Each wraps the result of those before
// it, so the last one passed runs first, and can keep the others from running. Name,
// description and schema stay.
func Wrap(t Tool, mw ...Middleware) Tool {
	execute := t.Execute
	for _, m := range mw {
		execute = m(execute)
	}
	return &wrapped{t, execute}
}

type wrapped struct {
	Tool
	execute func(context.Context, json.RawMessage) (json.RawMessage, error)
}

func (w *wrapped) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return w.execute(ctx, input)
}

// Unwrap returns the tool inside.
func (w *wrapped) Unwrap() Tool { return w.Tool }

// Failure is an error with advice how to handle it. Make one with [ToolCancel],
// [ToolDiscard] or [ToolSnooze]. Its text is that of Err, and errors.Is and errors.As see
// through it.
type Failure struct {
	Kind  abi.ErrorKind
	After time.Duration // of a snooze; zero lets the host choose
	Err   error         // never nil
}

// Error returns the text of Err, for the model.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// FailureKind implements the method that [KindOf] looks for.
func (f *Failure) FailureKind() (abi.ErrorKind, time.Duration) { return f.Kind, f.After }

// ToolCancel marks err as final although the input is fine: a missing permission, expired
// credentials. The call is not repeated. Nil stays nil.
func ToolCancel(err error) error { return mark(abi.ErrorCancel, 0, err) }

// ToolDiscard marks err as final because of the input, which can never succeed. The call is
// not repeated; the model may make a different one. Nil stays nil.
func ToolDiscard(err error) error { return mark(abi.ErrorDiscard, 0, err) }

// ToolSnooze marks err as temporary, such as a rate limit. The call is repeated after the
// delay, as long as its [RetryConfig] allows snoozes, without using up an attempt. Zero or
// less lets the host choose the delay. Nil stays nil.
func ToolSnooze(after time.Duration, err error) error {
	return mark(abi.ErrorSnooze, max(after, 0), err)
}

func mark(kind abi.ErrorKind, after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{kind, after, err}
}

// KindOf returns how to handle err, and the delay of a snooze. It asks the outermost error
// in its tree with a method FailureKind: a [Failure], the error of a guest, or a recorded
// effect. Otherwise an error that wraps [ErrTransient] is transient, and any other is
// [abi.ErrorTool]: the call may be repeated if the caller's policy allows it.
func KindOf(err error) (kind abi.ErrorKind, after time.Duration) {
	var marked interface {
		FailureKind() (abi.ErrorKind, time.Duration)
	}
	if errors.As(err, &marked) {
		kind, after = marked.FailureKind()
	}
	switch {
	case kind != "" && kind != abi.ErrorTool:
		return kind, after
	case errors.Is(err, ErrTransient):
		return abi.ErrorTransient, 0
	}
	return abi.ErrorTool, 0
}

// The meaning of zero in the fields of a [RetryConfig].
const (
	DefaultMaxAttempts   = 2
	DefaultMaxSnoozes    = 100
	DefaultMaxSnoozeTime = time.Hour
)

// RetryConfig is the policy for repeating failed calls of a tool. The zero value makes two
// attempts, one right after the other.
//
// The tool's advice takes precedence, see [KindOf]: cancel and discard end the call, and a
// snooze does not count as an attempt.
type RetryConfig struct {
	// MaxAttempts bounds the attempts, including the first. Zero means
	// [DefaultMaxAttempts]; with one, nothing is repeated.
	MaxAttempts int `yaml:"max_attempts"`

	// Jitter is the share, 0 to 1, by which a delay is lengthened or shortened at random,
	// so that calls that failed together do not return together. Zero means no delay at
	// all.
	Jitter float64 `yaml:"jitter"`

	// MaxSnoozes bounds the number of snoozes of a call, and MaxSnoozeTime their total
	// time. A snooze beyond either fails the call. Zero means [DefaultMaxSnoozes] and
	// [DefaultMaxSnoozeTime].
	MaxSnoozes    int           `yaml:"max_snoozes"`
	MaxSnoozeTime time.Duration `yaml:"max_snooze_time"`
}

// Check validates the policy.
func (r RetryConfig) Check() error {
	switch {
	case r.MaxAttempts < 0:
		return fmt.Errorf("tool: RetryConfig.MaxAttempts is %d, want 0 or more", r.MaxAttempts)
	case !(r.Jitter >= 0 && r.Jitter <= 1): // which NaN is not
		return fmt.Errorf("tool: RetryConfig.Jitter is %v, want 0 to 1", r.Jitter)
	case r.MaxSnoozes < 0 || r.MaxSnoozeTime < 0:
		return fmt.Errorf("tool: RetryConfig.MaxSnoozes is %d and MaxSnoozeTime %v, want 0 or more", r.MaxSnoozes, r.MaxSnoozeTime)
	}
	return nil
}

// Attempts returns the number of attempts that the policy allows.
func (r RetryConfig) Attempts() int {
	return cmp.Or(r.MaxAttempts, DefaultMaxAttempts)
}

// Snooze reports whether a call may snooze for the given time after this many snoozes with
// this total time.
func (r RetryConfig) Snooze(snoozes int, waited, next time.Duration) bool {
	most, longest := cmp.Or(r.MaxSnoozes, DefaultMaxSnoozes), cmp.Or(r.MaxSnoozeTime, DefaultMaxSnoozeTime)
	return snoozes < most && next <= longest-waited
}

// maxPower is the attempt after which delays stop growing. Its delay is 136 years, and
// twice that is the maximum of a Duration.
const maxPower = 256

// Delay returns the delay after a failed attempt, counted from 1: zero without Jitter, and
// otherwise the fourth power of the attempt in seconds (1, 16, 81, 256, 625 and so on),
// plus or minus up to the share Jitter, which bits determine. It depends on its arguments
// alone.
func (r RetryConfig) Delay(attempt int, bits uint64) time.Duration {
	if r.Jitter == 0 {
		return 0
	}
	n := int64(min(max(attempt, 1), maxPower))
	delay := time.Duration(n*n*n*n) * time.Second
	share := float64(bits>>11)/(1<<52) - 1 // in [-1, 1)
	return delay + time.Duration(share*r.Jitter*float64(delay))
}
