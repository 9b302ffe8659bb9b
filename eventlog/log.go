package eventlog

import (
	"context"
	"errors"
	"iter"

	"github.com/starling-host/starling/eventlog/event"
)

// Errors that callers tell apart with errors.Is. The first six texts are part
// of the seed format's contract.
var (
	// ErrLogClosed is returned by every method after Close.
	ErrLogClosed = errors.New("eventlog: log is closed")
	// ErrLogCorrupt is wrapped by every [CorruptError] that is not Newer.
	ErrLogCorrupt = errors.New("eventlog: log is corrupt")
	// ErrInvalidAppend means that an event does not continue its run. The log
	// itself is fine.
	ErrInvalidAppend = errors.New("eventlog: invalid append")
	// ErrReadOnly is returned by writes to a log that was opened for reading.
	ErrReadOnly = errors.New("eventlog: log is read-only")
	// ErrSchemaOutdated means that the file has an older layout; see [Migrate].
	ErrSchemaOutdated = errors.New("eventlog: schema outdated; run migrate")
	// ErrSchemaTooNew means that a newer program wrote the file, or the run.
	ErrSchemaTooNew = errors.New("eventlog: schema too new for this binary")
	// ErrLogStopped wraps the failure that stopped the log. What was
	// acknowledged is durable, what was not may or may not be; opening the log
	// again shows which.
	ErrLogStopped = errors.New("eventlog: log has stopped after a failed write; open it again")
	// ErrUnavailable means that the database cannot be reached for the moment, or has no
	// time or room. Nothing was done, and the same may succeed later.
	ErrUnavailable = errors.New("eventlog: the database cannot be reached")
	// ErrRunNotFound means that the log holds no event of that run.
	ErrRunNotFound = errors.New("eventlog: run not found")
	// ErrModuleNotFound means that the log holds no module with that digest.
	ErrModuleNotFound = errors.New("eventlog: module not found")
)

// Limits of what a log takes. Append refuses more, and strict checking refuses
// to have found more.
const (
	// MaxPayloadBytes bounds the encoded payload of one event. The largest
	// payload that the sandbox's defaults allow is an 8 MiB HTTP response.
	MaxPayloadBytes = 16 << 20
	// MaxRunIDBytes bounds a run id; a namespaced ULID has about 40 bytes.
	MaxRunIDBytes = 255
	// MaxModuleBytes bounds one stored module.
	MaxModuleBytes = 64 << 20
)

// EventLog is a log of runs. All methods may be called from any goroutine; the
// events of one run have to come from one writer at a time, in order.
//
// It decouples the runtime from the three backends of this repository, and
// grows when they do.
type EventLog interface {
	// Append checks that ev continues run runID and takes it. It returns
	// before ev is durable (see Sync), and blocks only while the log has more
	// queued than it can hold, until ctx ends. An error that is
	// [ErrInvalidAppend] concerns this event alone; nothing was taken.
	// The log keeps ev.Payload and ev.PrevHash, which MUST NOT be changed
	// afterwards.
	Append(ctx context.Context, runID string, ev event.Event) error

	// Sync returns nil when everything that was appended to runID before is
	// durable. When ctx ends first it returns the context's error, and the
	// events stay on their way to the disk. [ErrInvalidAppend] means that
	// another process continued the same run first, any other error that the
	// log has stopped.
	Sync(ctx context.Context, runID string) error

	// Read returns all events of a run in order: at least what this process
	// had appended before the call and the disk has taken. A run without
	// events is [ErrRunNotFound]. For runs that may not fit in memory use
	// [Events].
	Read(ctx context.Context, runID string) ([]event.Event, error)

	// Stream delivers a run's events from the first on, then each new one
	// once it is durable, without gap or repetition. A run that has not begun
	// is waited for. The channel is closed after the terminal event, when ctx
	// ends, when the log is closed and when reading fails; the kind of the last
	// event tells a finished run from the rest. A slow reader delays nobody
	// but itself: what it has not taken stays in the log. Other readers may be
	// given the same bytes, which MUST NOT be changed.
	Stream(ctx context.Context, runID string) (<-chan event.Event, error)

	// Close makes everything that was appended durable and releases the log.
	// It returns the failure that had stopped the log, if any.
	Close() error
}

// EventSource is implemented by logs that can read a run piecewise.
type EventSource interface {
	// Events yields the events of a run with numbers above after, in order,
	// holding only a bounded part of the run in memory. It ends after the last
	// durable event, or with one error.
	Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error]
}

// Events yields the events of a run with numbers above after: piecewise from
// an [EventSource], otherwise from one Read.
func Events(ctx context.Context, log EventLog, runID string, after uint64) iter.Seq2[event.Event, error] {
	if src, ok := log.(EventSource); ok {
		return src.Events(ctx, runID, after)
	}
	return func(yield func(event.Event, error) bool) {
		evs, err := log.Read(ctx, runID)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		for _, e := range evs {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}
