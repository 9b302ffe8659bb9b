package event

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/hint"
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
	const keysAndHeads = 80 // at most
	envelope := AppendEnvelope(make([]byte, 0, keysAndHeads+len(e.RunID)+len(e.Payload)+len(e.PrevHash)), e)
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
	dst = canon.AppendInt(canon.AppendText(dst, "ts"), e.Timestamp)
	dst = canon.AppendUint(canon.AppendText(dst, "seq"), e.Seq)
	dst = canon.AppendUint(canon.AppendText(dst, "kind"), uint64(e.Kind))
	dst = canon.AppendText(canon.AppendText(dst, "run_id"), e.RunID)
	dst = canon.AppendText(dst, "payload")
	if len(e.Payload) == 0 {
		dst = canon.AppendNull(dst)
	}
	return dst
}

func appendPrevHash(dst []byte, e Event) []byte {
	dst = canon.AppendText(dst, "prev_hash")
	if len(e.PrevHash) == 0 {
		return canon.AppendNull(dst)
	}
	return canon.AppendBytes(dst, e.PrevHash)
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

// OfCall decodes the payload of an event that may belong to a call, and returns nil for another event.
func OfCall(e Event) (payload any, err error) {
	switch e.Kind {
	case KindToolCallScheduled:
		return e.AsToolCallScheduled()
	case KindToolCallCompleted:
		return e.AsToolCallCompleted()
	case KindToolCallFailed:
		return e.AsToolCallFailed()
	case KindSideEffectRecorded:
		return e.AsSideEffectRecorded()
	case KindBudgetExceeded:
		return e.AsBudgetExceeded()
	}
	return nil, nil
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

// IDPrefix returns the first ten characters of the ids that are made in the millisecond of a time. All
// ids of that time or later sort behind them.
func IDPrefix(at time.Time) string { return ulid.MustNew(millisecond(at), nil).String()[:10] }

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
	return fmt.Appendf(line, `{"envelope":"%x","hash":"%v","kind":"%v","payload":%s,"run_id":%s,"seq":%d,"ts":%d}`,
		envelope, Hash(envelope), e.Kind, payload, canon.AppendString(nil, e.RunID), e.Seq, e.Timestamp), nil
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

// Needs returns the digests of what a run needs beside its events, as far as this event names it: the
// modules that the first event names, and the roots of the trees of files that the run or a call was given, or a
// call left. It is [ErrEncrypted] if the event is encrypted and of a kind that can name some.
func (e Event) Needs() (modules, roots []canon.Hash, err error) {
	var root []byte
	names := bytes.Contains(e.Payload, []byte("\x69workspace")) // the key: decoding each event would be slow
	switch call := e.Kind == KindToolCallScheduled || e.Kind == KindToolCallCompleted; {
	case e.Kind == KindRunStarted:
		modules, err = e.Modules()
		if err == nil && names {
			err = On(e, func(p RunStarted) {
				if p.Workspace != nil {
					root = p.Workspace.Root
				}
			})
		}
	case call && looksEncrypted(e.Payload):
		err = ErrEncrypted
	case names && e.Kind == KindToolCallScheduled:
		err = On(e, func(p ToolCallScheduled) {
			if p.Workspace != nil {
				root = p.Workspace.Root
			}
		})
	case names && call:
		err = On(e, func(p ToolCallCompleted) { root = p.Workspace })
	}
	switch {
	case len(root) == HashSize:
		roots = []canon.Hash{canon.Hash(root)}
	case len(root) > 0:
		err = fmt.Errorf("the root of the files has %d bytes", len(root))
	}
	return modules, roots, err
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

// Encrypted is the payload of an encrypted event of any kind. The envelope stays visible, and so
// does the Merkle root of a terminal event, so that the run can be validated without the key.
// Package cipherlog encrypts and decrypts it, as described in section 13 of spec/event.md.
type Encrypted struct {
	Alg        string `cbor:"alg"` // EncryptedAlg
	Key        []byte `cbor:"key"` // names the data key; it is not the key
	Data       []byte `cbor:"data"`
	Nonce      []byte `cbor:"nonce"`
	MerkleRoot []byte `cbor:"merkle_root,omitempty"` // of terminal events: over the hashes of the run as stored
}

// EncryptedContent is the plain content of an [Encrypted].
type EncryptedContent struct {
	Totals   *EncryptedTotals `cbor:"totals,omitempty"` // nil if they are all zero
	Payload  canon.Raw        `cbor:"payload"`          // of the event
	PrevHash []byte           `cbor:"prev_hash"`        // of the event, before encryption
}

// EncryptedTotals is the hidden part of a run's summary, up to and including
// one event.
type EncryptedTotals struct {
	Tools        int64   `cbor:"tools,omitempty"` // calls, not attempts
	CostUSD      float64 `cbor:"cost_usd,omitempty"`
	InputTokens  int64   `cbor:"input_tokens,omitempty"`
	OutputTokens int64   `cbor:"output_tokens,omitempty"`
}

// The parts of an encrypted payload.
const (
	EncryptedAlg       = "A256GCM" // AES-256-GCM under a key of the run
	EncryptedKeySize   = 16
	EncryptedNonceSize = 12
	EncryptedTagSize   = 16 // Data is longer than its content by this
)

// ErrEncrypted is returned by [Decode] and the accessors for an event that is
// stored encrypted.
var ErrEncrypted = hint.New("event: the payload is encrypted; the data key decrypts it",
	"to decrypt runs of tenants, pass the master key: --key-file FILE (runs of erased tenants stay unreadable)")

// encryptedHead are the bytes after the head of the map: no struct of a kind has a
// field of this name.
const encryptedHead = "\x63alg"

// AppendEncrypted appends the encoding of s to dst.
func AppendEncrypted(dst []byte, s Encrypted) []byte {
	dst = append(AppendEncryptedHead(dst, s, len(s.Data)), s.Data...)
	return AppendEncryptedTail(dst, s)
}

// AppendEncryptedHead appends the bytes before the data of s, which has size bytes.
func AppendEncryptedHead(dst []byte, s Encrypted, size int) []byte {
	pairs := 4
	if len(s.MerkleRoot) > 0 {
		pairs = 5
	}
	dst = canon.AppendMap(dst, pairs)
	dst = canon.AppendText(append(dst, encryptedHead...), s.Alg)
	dst = canon.AppendBytes(canon.AppendText(dst, "key"), s.Key)
	return canon.AppendBytesHead(canon.AppendText(dst, "data"), size)
}

// AppendEncryptedTail appends the bytes after the data of s.
func AppendEncryptedTail(dst []byte, s Encrypted) []byte {
	dst = canon.AppendBytes(canon.AppendText(dst, "nonce"), s.Nonce)
	if len(s.MerkleRoot) > 0 {
		dst = canon.AppendBytes(canon.AppendText(dst, "merkle_root"), s.MerkleRoot)
	}
	return dst
}

// AsEncrypted returns p as an encrypted payload, and whether it is one: exactly the
// bytes that [AppendEncrypted] makes of fields of the right sizes. The fields are parts of p.
func AsEncrypted(p canon.Raw) (Encrypted, bool) {
	if !looksEncrypted(p) {
		return Encrypted{}, false
	}
	s, rest, ok := Encrypted{Alg: EncryptedAlg}, canon.AppendText(nil, EncryptedAlg), false
	if rest, ok = bytes.CutPrefix(p[1+len(encryptedHead):], rest); !ok {
		return Encrypted{}, false
	}
	for _, field := range []struct {
		key  string
		into *[]byte
	}{{"key", &s.Key}, {"data", &s.Data}, {"nonce", &s.Nonce}, {"merkle_root", &s.MerkleRoot}} {
		after, ok := bytes.CutPrefix(rest, canon.AppendText(nil, field.key))
		if !ok {
			break
		}
		if *field.into, rest, ok = canon.CutBytes(after); !ok {
			return Encrypted{}, false
		}
	}
	const map4 = 0xa4
	sizes := len(s.Key) == EncryptedKeySize && len(s.Nonce) == EncryptedNonceSize && len(s.Data) >= EncryptedTagSize &&
		(p[0] == map4 && s.MerkleRoot == nil || p[0] != map4 && len(s.MerkleRoot) == HashSize)
	return s, sizes && len(rest) == 0
}

// looksEncrypted reports whether p begins as an encrypted payload does.
func looksEncrypted(p canon.Raw) bool {
	const map4, map5 = 0xa4, 0xa5 // RFC 8949 section 3.1
	return len(p) > 0 && (p[0] == map4 || p[0] == map5) && bytes.HasPrefix(p[1:], []byte(encryptedHead))
}
