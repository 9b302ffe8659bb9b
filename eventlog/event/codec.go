package event

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
)

// Payload is one of the structs that an event can carry.
type Payload interface {
	// EventKind is the kind of the events that carry the struct.
	EventKind() Kind
}

// EncodePayload returns the canonical encoding of p. It refuses what an
// envelope could not hold: text that is not UTF-8, a value that is not
// canonical or that nests too deep.
func EncodePayload[T any](p T) (canon.Raw, error) {
	raw, err := canon.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("event: payload: %w", err)
	}
	return raw, nil
}

// Decode returns the payload of e, which must be of T's kind. Fields that a
// newer writer added are ignored. A payload that is encrypted is [ErrSealed].
func Decode[T Payload](e Event) (T, error) {
	var p T
	if e.Kind != p.EventKind() {
		return p, fmt.Errorf("event: seq %d of run %q is %s, not %s", e.Seq, e.RunID, e.Kind, p.EventKind())
	}
	if looksSealed(e.Payload) {
		return p, fmt.Errorf("%w: %s at seq %d of run %q", ErrSealed, e.Kind, e.Seq, e.RunID)
	}
	const mapMajor = 5 // RFC 8949 section 3.1; the codec would take null for an empty map
	if len(e.Payload) == 0 || e.Payload[0]>>5 != mapMajor {
		return p, fmt.Errorf("event: %s at seq %d of run %q: the payload is not a map", e.Kind, e.Seq, e.RunID)
	}
	if err := canon.Unmarshal(e.Payload, &p); err != nil {
		return p, fmt.Errorf("event: %s at seq %d of run %q: %w", e.Kind, e.Seq, e.RunID, err)
	}
	return p, nil
}
