package event

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/starling-host/starling/eventlog/canon"
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
const HashSize = len(canon.Hash{})

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
	dst = append(appendBeforePayload(dst, e), e.Payload...)
	return appendPrevHash(dst, e)
}

func appendBeforePayload(dst []byte, e Event) []byte {
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
	return dst
}

func appendPrevHash(dst []byte, e Event) []byte {
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

// Unmarshal is the inverse of [Marshal]. It accepts only the output of
// Marshal: six keys in canonical order, prev_hash null or 32 bytes, and a
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
func Hash(envelope []byte) canon.Hash { return canon.Sum(envelope) }

// Hash returns the hash of e's envelope, which it does not put together for that.
func (e Event) Hash() canon.Hash {
	var before [256]byte
	var after [64]byte
	return canon.Sum(appendBeforePayload(before[:0], e), e.Payload, appendPrevHash(after[:0], e))
}

// Payload is one of the structs that an event can carry.
type Payload interface {
	// EventKind is the kind of the events that carry the struct.
	EventKind() Kind
}

// EncodePayload returns the canonical encoding of p. It refuses values that
// an envelope cannot hold: text that is not UTF-8, and values that are not
// canonical or nest too deep.
func EncodePayload[T any](p T) (canon.Raw, error) {
	raw, err := canon.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("event: payload: %w", err)
	}
	return raw, nil
}

// On decodes the payload of an event, as [Decode] does, and gives it to do.
func On[T Payload](e Event, do func(T)) error {
	p, err := Decode[T](e)
	if err == nil {
		do(p)
	}
	return err
}

// Decode returns the payload of e, which must be of T's kind. Fields that a
// newer writer added are ignored. A payload that is encrypted is [ErrEncrypted].
func Decode[T Payload](e Event) (T, error) {
	var p T
	if e.Kind != p.EventKind() {
		return p, &otherKind{e.RunID, e.Seq, e.Kind, p.EventKind()}
	}
	if looksEncrypted(e.Payload) {
		return p, fmt.Errorf("%w: %s at seq %d of run %q", ErrEncrypted, e.Kind, e.Seq, e.RunID)
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

// otherKind is the error for an event of another kind. Callers that try several kinds never read its
// text.
type otherKind struct {
	runID      string
	seq        uint64
	kind, want Kind
}

func (e *otherKind) Error() string {
	return fmt.Sprintf("event: seq %d of run %q is %s, not %s", e.seq, e.runID, e.kind, e.want)
}

// NewID returns a new ULID: 26 characters that sort by the millisecond of
// their making and end in 80 bits from crypto/rand. A clock before 1970 or after 10889 gives
// the first or the last of these times.
func NewID() string { return ulid.MustNew(millisecond(time.Now()), rand.Reader).String() }

func millisecond(at time.Time) uint64 {
	return min(uint64(max(at.UnixMilli(), 0)), ulid.MaxTime())
}

// RegistryHash returns RunStarted.ToolRegistryHash of the references, which must be sorted by name:
// BLAKE3 of an array with one map of name and schema_hash for each. It is nil without references.
// It does not cover the fields that this project adds to a reference, so that the hash keeps its
// meaning in the Starling format.
func RegistryHash(refs []ToolSchemaRef) []byte {
	if len(refs) == 0 {
		return nil
	}
	b := canon.AppendArray(nil, len(refs))
	for _, r := range refs {
		b = canon.AppendMap(b, 2)
		b = canon.AppendText(canon.AppendText(b, "name"), r.Name)
		b = canon.AppendBytes(canon.AppendText(b, "schema_hash"), r.SchemaHash)
	}
	h := canon.Sum(b)
	return h[:]
}

// ToJSON returns e as one line of JSON without a line feed, for export. The
// keys are envelope and hash (both hexadecimal), kind (its name), payload (as
// [canon.Render] shows it), run_id, seq and ts.
//
// Nothing is lost: envelope is the event, the rest is for readers. A reader
// who must be sure decodes envelope and compares its BLAKE3 with hash.
func ToJSON(e Event) ([]byte, error) {
	envelope, err := Marshal(e)
	if err != nil {
		return nil, err
	}
	payload, err := canon.Render(e.Payload)
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, 2*len(envelope)+len(payload)+256)
	line = append(line, `{"envelope":"`...)
	line = hex.AppendEncode(line, envelope)
	line = append(line, `","hash":"`...)
	line = append(line, Hash(envelope).String()...)
	line = append(line, `","kind":"`...)
	line = append(line, e.Kind.String()...)
	line = append(line, `","payload":`...)
	line = append(line, payload...)
	line = append(line, `,"run_id":`...)
	line = canon.AppendString(line, e.RunID)
	line = append(line, `,"seq":`...)
	line = strconv.AppendUint(line, e.Seq, 10)
	line = append(line, `,"ts":`...)
	line = strconv.AppendInt(line, e.Timestamp, 10)
	return append(line, '}'), nil
}

// FromJSON returns the event of a line that [ToJSON] has written. Any other line is an
// error, even if only the part for readers was changed.
func FromJSON(line []byte) (Event, error) {
	var l struct {
		Envelope string `json:"envelope"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return Event{}, fmt.Errorf("event: not a line of an export: %w", err)
	}
	envelope, err := hex.DecodeString(l.Envelope)
	if err != nil {
		return Event{}, fmt.Errorf("event: the envelope is not hexadecimal: %w", err)
	}
	e, err := Unmarshal(envelope)
	if err != nil {
		return Event{}, err
	}
	again, err := ToJSON(e)
	if err != nil {
		return Event{}, err
	}
	return e, SameLine(line, again)
}

// SameLine returns an error that describes where a line differs from the expected one, or nil.
func SameLine(line, want []byte) error {
	if bytes.Equal(line, want) {
		return nil
	}
	at := 0
	for at < min(len(line), len(want)) && line[at] == want[at] {
		at++
	}
	return fmt.Errorf("column %d: %.40q, where %.40q would be right", at+1, line[at:], want[at:])
}

// Modules returns the digests of the modules that the first event of a run names, in the
// order of its tools. It is [ErrEncrypted] if the event is encrypted.
func (e Event) Modules() (digests []canon.Hash, err error) {
	started, err := e.AsRunStarted()
	if err != nil {
		return nil, err
	}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil {
			continue
		}
		if len(ref.Sandbox.Module) != HashSize {
			return nil, fmt.Errorf("the digest of the module of tool %q has %d bytes", ref.Name, len(ref.Sandbox.Module))
		}
		digests = append(digests, canon.Hash(ref.Sandbox.Module))
	}
	return digests, nil
}

// absent is shown by [Diff] for a field that one side lacks.
const absent = "(absent)"

// Diff finds the first difference between two payloads, in the order of their
// bytes. When they are equal, same is true and the rest is empty.
//
// Field is the path to the difference, as in tool_schemas[0].sandbox.module,
// and empty when the payloads differ as a whole. Want and have are the two
// values there: text as it is, so that a caller can point at the first
// character that differs; everything else rendered as JSON; and "(absent)"
// for a missing value.
func Diff(expected, got canon.Raw) (field, want, have string, same bool) {
	if bytes.Equal(expected, got) {
		return "", "", "", true
	}
	field, a, b := canon.Difference(expected, got)
	want, have = show(a), show(b)
	if want == have { // text and bytes that read alike
		want, have = render(a), render(b)
	}
	return field, want, have, false
}

// show gives one side of a difference to people.
func show(v canon.Raw) string {
	if text, ok := canon.Text(v); ok {
		return text
	}
	return render(v)
}

// render shows v as JSON, or as a byte string if it is not canonical.
func render(v canon.Raw) string {
	if len(v) == 0 {
		return absent
	}
	rendered, err := canon.Render(v)
	if err != nil {
		rendered, _ = canon.Render(canon.AppendBytes(nil, v))
	}
	return string(rendered)
}
