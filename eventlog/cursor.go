package eventlog

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// Cursor is what a backend has to know of a run in order to take its next
// event: where the run stands. Its zero value stands before the first event.
// It is not safe for concurrent use; a backend guards one cursor per run.
type Cursor struct {
	run     RunSummary
	startNs int64
}

// NewCursor returns the cursor of a run that stands where its summary says,
// for a run that another process, or this one earlier, has begun.
func NewCursor(s RunSummary) Cursor {
	return Cursor{run: s, startNs: s.StartedAt.UnixNano()}
}

// Run returns where the run stands.
func (c *Cursor) Run() RunSummary { return c.run }

// Append checks that ev continues the run and moves behind it. After an error,
// which is [ErrInvalidAppend], the cursor is where it was.
func (c *Cursor) Append(runID string, ev event.Event) error {
	if err := c.check(runID, ev); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidAppend, err)
	}
	c.advance(ev, ev.Hash())
	return nil
}

// Skip moves behind ev without checking it. It is for events that are stored
// already.
func (c *Cursor) Skip(ev event.Event) { c.advance(ev, ev.Hash()) }

// advance moves behind ev, whose hash is known.
func (c *Cursor) advance(ev event.Event, hash chain.Hash) {
	if c.run.RunID == "" {
		c.run.RunID, c.startNs = ev.RunID, ev.Timestamp
		c.run.StartedAt = time.Unix(0, ev.Timestamp).UTC()
	}
	if ev.Kind.Terminal() {
		c.run.TerminalKind = ev.Kind
	}
	c.run.add(ev)
	c.run.LastSeq = ev.Seq
	c.run.DurationMs = max(0, (ev.Timestamp-c.startNs)/int64(time.Millisecond))
	c.run.Head = hash
}

func (c *Cursor) check(runID string, ev event.Event) error {
	if err := checkRunID(runID, ev.RunID); err != nil {
		return err
	}
	if err := c.checkChain(ev); err != nil {
		return err
	}
	if ev.Seq == 1 {
		if err := CheckRunID(runID); err != nil {
			return err
		}
	}
	if err := c.checkKind(ev); err != nil {
		return err
	}
	return checkPayload(ev.Payload)
}

func checkRunID(param, inEvent string) error {
	switch {
	case param == "":
		return fmt.Errorf("empty runID parameter")
	case inEvent == "":
		return fmt.Errorf("event has empty RunID")
	case param != inEvent:
		return fmt.Errorf("runID parameter %q does not match event RunID %q", param, inEvent)
	case len(param) > MaxRunIDBytes:
		return fmt.Errorf("run id has %d bytes; at most %d are allowed", len(param), MaxRunIDBytes)
	case !utf8.ValidString(param):
		return fmt.Errorf("run id %q is not valid UTF-8", param)
	}
	return nil
}

// CheckRunID returns why a new run cannot have an id. People type, complete and paste ids,
// so an id is one word for a shell, no flag, and nothing that a terminal acts upon: 1 to
// [MaxRunIDBytes] of the letters and digits of ASCII and "/_-.:", the first no hyphen.
//
// Runs of other programs may have any id. They are read and continued all the same.
func CheckRunID(id string) error {
	switch at := strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/_-.:", r))
	}); {
	case id == "" || len(id) > MaxRunIDBytes:
		return fmt.Errorf("a run id has 1 to %d bytes, not %d", MaxRunIDBytes, len(id))
	case at >= 0 || id[0] == '-':
		return fmt.Errorf("run id %q has more in it than letters, digits and /_-.: or begins with a hyphen", id)
	}
	return nil
}

// checkChain wants the next number and the hash of the last event.
func (c *Cursor) checkChain(ev event.Event) error {
	last := c.run.LastSeq
	switch {
	case last == 0 && ev.Seq != 1:
		return fmt.Errorf("first event must have Seq=1, got %d", ev.Seq)
	case last == 0 && len(ev.PrevHash) != 0:
		return fmt.Errorf("first event must have empty PrevHash")
	case ev.Seq != last+1:
		return fmt.Errorf("expected Seq=%d, got %d", last+1, ev.Seq)
	case last > 0 && !bytes.Equal(ev.PrevHash, c.run.Head[:]):
		return fmt.Errorf("PrevHash does not match prior event hash (Seq=%d)", ev.Seq)
	}
	return nil
}

func (c *Cursor) checkKind(ev event.Event) error {
	switch {
	case c.run.TerminalKind != 0:
		return fmt.Errorf("run %q has ended with %v", c.run.RunID, c.run.TerminalKind)
	case !ev.Kind.Valid():
		return fmt.Errorf("unknown kind %d", uint8(ev.Kind))
	case ev.Seq == 1 && ev.Kind != event.KindRunStarted:
		return fmt.Errorf("first event must be RunStarted, got %v", ev.Kind)
	case ev.Seq != 1 && ev.Kind == event.KindRunStarted:
		return fmt.Errorf("second RunStarted at Seq=%d", ev.Seq)
	}
	return nil
}

func checkPayload(p canon.Raw) error {
	if len(p) > MaxPayloadBytes {
		return fmt.Errorf("payload has %d bytes; at most %d are allowed", len(p), MaxPayloadBytes)
	}
	if err := canon.Valid(p); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}
