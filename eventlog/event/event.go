package event

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/chain"
)

// Event is one entry of a run's log: the envelope and, inside it, the payload.
type Event struct {
	RunID     string    `cbor:"run_id"`
	Seq       uint64    `cbor:"seq"`       // from 1, without gaps
	PrevHash  []byte    `cbor:"prev_hash"` // hash of the event before; empty for the first
	Timestamp int64     `cbor:"ts"`        // Unix nanoseconds
	Kind      Kind      `cbor:"kind"`
	Payload   canon.Raw `cbor:"payload"` // the canonical encoding of the kind's struct
}

// HashSize is the length of a hash in bytes.
const HashSize = len(chain.Hash{})

// Marshal returns the envelope of e, the bytes that are hashed. It refuses an
// event that [Unmarshal] would refuse.
func Marshal(e Event) ([]byte, error) {
	if len(e.PrevHash) != 0 && len(e.PrevHash) != HashSize {
		return nil, fmt.Errorf("event: prev_hash has %d bytes, want none or %d", len(e.PrevHash), HashSize)
	}
	envelope := AppendEnvelope(make([]byte, 0, envelopeSize(e)), e)
	if err := canon.Valid(envelope); err != nil {
		return nil, fmt.Errorf("event: seq %d of run %q: %w", e.Seq, e.RunID, err)
	}
	return envelope, nil
}

// AppendEnvelope appends the envelope of e to dst without checking it. For an
// event that [Marshal] accepts the bytes are the same.
//
// An empty PrevHash is null, whether it is nil or not: the Starling format
// has a second form for the empty slice, which its databases do not keep apart
// and which therefore breaks the chain when it is read back.
func AppendEnvelope(dst []byte, e Event) []byte {
	dst = canon.AppendMap(dst, 6)
	dst = append(dst, "\x62ts"...)
	dst = canon.AppendInt(dst, e.Timestamp)
	dst = append(dst, "\x63seq"...)
	dst = canon.AppendUint(dst, e.Seq)
	dst = append(dst, "\x64kind"...)
	dst = canon.AppendUint(dst, uint64(e.Kind))
	dst = append(dst, "\x66run_id"...)
	dst = canon.AppendText(dst, e.RunID)
	dst = append(dst, "\x67payload"...)
	if len(e.Payload) == 0 {
		dst = canon.AppendNull(dst)
	}
	dst = append(dst, e.Payload...)
	dst = append(dst, "\x69prev_hash"...)
	if len(e.PrevHash) == 0 {
		return canon.AppendNull(dst)
	}
	return canon.AppendBytes(dst, e.PrevHash)
}

// envelopeSize is at least the length of e's envelope.
func envelopeSize(e Event) int {
	const keysAndHeads = 80
	return keysAndHeads + len(e.RunID) + len(e.Payload) + len(e.PrevHash)
}

// Unmarshal is the inverse of [Marshal]. It accepts nothing but what Marshal
// returns: six keys in canonical order, prev_hash null or 32 bytes, and a
// canonical payload. Kind and sequence number are the business of validation.
func Unmarshal(envelope []byte) (Event, error) {
	if err := canon.Valid(envelope); err != nil {
		return Event{}, fmt.Errorf("event: envelope: %w", err)
	}
	var e Event
	if err := canon.Unmarshal(envelope, &e); err != nil {
		return Event{}, fmt.Errorf("event: envelope: %w", err)
	}
	if len(e.PrevHash) != 0 && len(e.PrevHash) != HashSize {
		return Event{}, fmt.Errorf("event: prev_hash has %d bytes, want null or %d", len(e.PrevHash), HashSize)
	}
	again := AppendEnvelope(make([]byte, 0, len(envelope)), e)
	if !bytes.Equal(again, envelope) {
		return Event{}, errNotEnvelope
	}
	return e, nil
}

var errNotEnvelope = errors.New("event: envelope: want exactly the keys ts, seq, kind, run_id, payload and prev_hash, the last null or 32 bytes")

// Hash returns the hash of an envelope.
func Hash(envelope []byte) chain.Hash { return chain.Sum(envelope) }

// Hash returns the hash of e's envelope.
func (e Event) Hash() chain.Hash {
	return chain.Sum(AppendEnvelope(make([]byte, 0, envelopeSize(e)), e))
}
