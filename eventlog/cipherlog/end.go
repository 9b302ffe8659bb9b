package cipherlog

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// End ends a run as cancelled whose data key was destroyed, so that it does not stay
// open for ever. What is appended is sealed under a key that nobody keeps: everybody
// sees that the run has ended, and nobody more than that. log is the one below. A run
// that is not there or has ended stays as it is. When End returns nil, the end is
// durable.
func End(ctx context.Context, log eventlog.EventLog, runID string) error {
	at, err := unreadable(ctx, log, runID)
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

// unreadable is the state of a run for a writer without its key, with a key of its own.
// The plain chain begins anew behind the stored one.
func unreadable(ctx context.Context, log eventlog.EventLog, runID string) (state, error) {
	secret := make([]byte, KeySize)
	_, _ = rand.Read(secret) // never fails
	key, err := NewKey(secret)
	if err != nil {
		return state{}, err
	}
	var s state
	if s.cipher, err = key.cipher(runID); err != nil {
		return s, err
	}
	for e, err := range eventlog.Events(ctx, log, runID, 0) {
		if errors.Is(err, eventlog.ErrRunNotFound) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		s.plain.Skip(e)
		s.head = s.plain.Run().Head
		s.tree.Add(s.head)
	}
	return s, nil
}

// append seals an event and hands it to the log below.
func (s state) append(ctx context.Context, log eventlog.EventLog, runID string, kind event.Kind, payload any) (state, error) {
	raw, err := event.EncodePayload(payload)
	if err != nil {
		return s, err
	}
	stands := s.plain.Run()
	sealed, next, err := s.next(runID, event.Event{
		RunID: runID, Seq: stands.LastSeq + 1, PrevHash: stands.Head[:], Timestamp: time.Now().UnixNano(), Kind: kind, Payload: raw,
	})
	if err != nil {
		return s, err
	}
	return next, log.Append(ctx, runID, sealed)
}
