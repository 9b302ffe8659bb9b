package cipherlog

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// state is a writer's position in the two chains of its run.
type state struct {
	cipher runCipher
	plain  eventlog.Cursor // after the last event, as the caller sees it
	head   canon.Hash      // of the last event as stored
	tree   canon.Tree      // over the stored events
}

// next checks ev and returns its stored event, and the state after it. An error
// is [eventlog.ErrInvalidAppend], or means that encrypting failed.
func (s state) next(runID string, ev event.Event) (event.Event, state, error) {
	nonce := make([]byte, event.EncryptedNonceSize)
	_, _ = rand.Read(nonce) // never fails
	return s.nextWith(nonce, runID, ev)
}

// nextWith is next with a nonce that this run has not used before.
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
	encrypted, err := s.cipher.encrypt(nonce, ev, s.plain.Run(), stored, root)
	if err != nil {
		return event.Event{}, s, err
	}
	s.head = encrypted.Hash()
	s.tree.Add(s.head)
	return encrypted, s, nil
}

// fresh is the state of a run without events.
func (k Key) fresh(runID string) (state, error) {
	c, err := k.cipher(runID)
	return state{cipher: c}, err
}

// load reads a run as stored and decrypts the last event, which has the rest. A
// run without events has the state of a fresh one.
func (l *Log) load(ctx context.Context, runID string) (state, error) {
	s, err := l.key.fresh(runID)
	if err != nil {
		return s, err
	}
	if err := l.inner.Sync(ctx, runID); err != nil { // queued events must be read, too
		return s, err
	}
	last, err := s.follow(ctx, l.inner, runID)
	if err != nil || last.Seq == 0 {
		return s, err
	}
	sum, err := s.cipher.summary(s.plain.Run(), last)
	if err == nil {
		s.plain = eventlog.NewCursor(sum)
	}
	return s, err
}

// follow reads a run as stored, which leaves plain at the position of the stored chain,
// and returns its last event. A run without events changes nothing.
func (s *state) follow(ctx context.Context, log eventlog.EventLog, runID string) (last event.Event, err error) {
	for e, err := range log.Events(ctx, runID, 0) {
		if errors.Is(err, eventlog.ErrRunNotFound) {
			break
		}
		if err != nil {
			return last, err
		}
		s.plain.Skip(e)
		s.head = s.plain.Run().Head
		s.tree.Add(s.head)
		last = e
	}
	return last, nil
}

// summary turns the stored summary of a run into the plain one, given the run's
// last event.
func (c runCipher) summary(stored eventlog.RunSummary, last event.Event) (eventlog.RunSummary, error) {
	plain, t, err := c.open(last)
	if err != nil {
		return stored, err
	}
	if stored.Head != (canon.Hash{}) { // or the log below keeps none
		stored.Head = plain.Hash()
	}
	stored.ToolCallCount, stored.CostUSD = int(t.Tools), t.CostUSD
	stored.InputTokens, stored.OutputTokens = t.InputTokens, t.OutputTokens
	return stored, nil
}

// First returns the stored form of a run's first event, for a caller that appends
// it in a transaction of the log below.
func First(key Key, ev event.Event) (event.Event, error) {
	if ev.Seq != 1 {
		return event.Event{}, errors.New("cipherlog: First is for first events")
	}
	at, err := key.fresh(ev.RunID)
	if err != nil {
		return event.Event{}, err
	}
	encrypted, _, err := at.next(ev.RunID, ev)
	return encrypted, err
}

// End ends a run whose data key was destroyed as cancelled, so that it does not stay
// open for ever. The event is encrypted under a key that is thrown away: every reader
// sees that the run has ended, and no more. log is the log below. A run that does not
// exist or has ended stays unchanged. When End returns nil, the end is durable.
func End(ctx context.Context, log eventlog.EventLog, runID string) error {
	secret := make([]byte, KeySize)
	_, _ = rand.Read(secret) // never fails
	key, err := NewKey(secret)
	if err != nil {
		return err
	}
	at, err := key.fresh(runID)
	if err == nil { // the plain chain begins anew after the stored one
		_, err = at.follow(ctx, log, runID)
	}
	if stands := at.plain.Run(); err != nil || stands.LastSeq == 0 || stands.TerminalKind != 0 {
		return err
	}
	if seam := at.plain.Run().LastSeq; seam > 1 {
		if at, err = at.append(ctx, log, runID, event.KindRunResumed, event.RunResumed{AtSeq: seam}); err != nil {
			return err
		}
	}
	root := at.tree.Root()
	if _, err = at.append(ctx, log, runID, event.KindRunCancelled, event.RunCancelled{Reason: "erased", MerkleRoot: root[:]}); err != nil {
		return err
	}
	return log.Sync(ctx, runID)
}

// append encrypts an event and hands it to the log below.
func (s state) append(ctx context.Context, log eventlog.EventLog, runID string, kind event.Kind, payload any) (state, error) {
	raw, err := event.EncodePayload(payload)
	if err != nil {
		return s, err
	}
	stands := s.plain.Run()
	encrypted, next, err := s.next(runID, event.Event{
		RunID: runID, Seq: stands.LastSeq + 1, PrevHash: stands.Head[:], Timestamp: time.Now().UnixNano(), Kind: kind, Payload: raw,
	})
	if err != nil {
		return s, err
	}
	return next, log.Append(ctx, runID, encrypted)
}
