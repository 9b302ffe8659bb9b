package cipherlog

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// state is what the writer of a run has to know of its two chains.
type state struct {
	cipher runCipher
	plain  eventlog.Cursor // behind the last event, as the caller sees it
	head   chain.Hash      // of the last event as it is stored
	tree   chain.Tree      // over the stored events
}

// next checks ev and returns what is stored for it, and the state behind it. An
// error is [eventlog.ErrInvalidAppend], or says that sealing failed.
func (s state) next(runID string, ev event.Event) (event.Event, state, error) {
	nonce := make([]byte, event.SealedNonceSize)
	_, _ = rand.Read(nonce) // never fails
	return s.nextWith(nonce, runID, ev)
}

// nextWith is next under a nonce that was never used in this run.
func (s state) nextWith(nonce []byte, runID string, ev event.Event) (event.Event, state, error) {
	if err := s.plain.Append(runID, ev); err != nil {
		return event.Event{}, s, err
	}
	var stored, root []byte
	if ev.Seq > 1 {
		head := s.head
		stored = head[:]
	}
	if ev.Kind.Terminal() {
		r := s.tree.Root()
		root = r[:]
	}
	sealed, err := s.cipher.seal(nonce, ev, s.plain.Run(), stored, root)
	if err != nil {
		return event.Event{}, s, err
	}
	s.head = sealed.Hash()
	s.tree.Add(s.head)
	return sealed, s, nil
}

// fresh is the state of a run without events.
func (l *Log) fresh(runID string) (state, error) {
	c, err := l.key.cipher(runID)
	return state{cipher: c}, err
}

// load reads a run as it is stored and opens the last event, which has the rest.
// A run without events has the state of a fresh one.
func (l *Log) load(ctx context.Context, runID string) (state, error) {
	s, err := l.fresh(runID)
	if err != nil {
		return s, err
	}
	if err := l.inner.Sync(ctx, runID); err != nil { // what is on its way must be read, too
		return s, err
	}
	var stored eventlog.Cursor
	var last event.Event
	for e, err := range eventlog.Events(ctx, l.inner, runID, 0) {
		if errors.Is(err, eventlog.ErrRunNotFound) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		stored.Skip(e)
		s.tree.Add(stored.Run().Head)
		last = e
	}
	s.head = stored.Run().Head
	sum, err := s.cipher.summary(stored.Run(), last)
	if err == nil {
		s.plain = eventlog.NewCursor(sum)
	}
	return s, err
}

// summary turns what the log below knows of a run into what the caller would know,
// given the run's last event.
func (c runCipher) summary(stored eventlog.RunSummary, last event.Event) (eventlog.RunSummary, error) {
	plain, t, err := c.open(last)
	if err != nil {
		return stored, err
	}
	if stored.Head != (chain.Hash{}) { // or the log below keeps none
		stored.Head = plain.Hash()
	}
	stored.ToolCallCount, stored.CostUSD = int(t.Tools), t.CostUSD
	stored.InputTokens, stored.OutputTokens = t.InputTokens, t.OutputTokens
	return stored, nil
}
