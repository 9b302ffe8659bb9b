package cipherlog

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// KeySize is the length of a data key in bytes.
const KeySize = 32

// The labels of the keys derived from a data key. No two purposes share a key.
const (
	labelID  = "starling-host data key id 1\x00"
	labelRun = "starling-host run key 1\x00"
	labelSub = "starling-host subkey 1\x00"
)

// Key is the data key of one tenant. Printing it shows its id and nothing else,
// also where it is part of something else that is printed: package fmt asks no
// methods of a value that it meets in an unexported field, and follows pointers
// under some verbs, but it cannot look into a function. The zero value is not a
// key.
type Key struct{ of func() *material }

type material struct {
	secret [KeySize]byte
	id     [16]byte
}

// NewKey makes a key from 32 random bytes, and keeps a copy of them.
func NewKey(secret []byte) (Key, error) {
	if len(secret) != KeySize {
		return Key{}, fmt.Errorf("cipherlog: a data key has %d bytes, this has %d", KeySize, len(secret))
	}
	m := &material{secret: [KeySize]byte(secret)}
	id, err := hkdf.Key(sha256.New, secret, nil, labelID, len(m.id))
	if err != nil {
		return Key{}, fmt.Errorf("cipherlog: key id: %w", err)
	}
	copy(m.id[:], id)
	return Key{func() *material { return m }}, nil
}

// Valid reports whether k is a key.
func (k Key) Valid() bool { return k.of != nil }

// ID names the key. It is derived from the key, so that one id cannot name two
// keys, and reveals nothing about it. It is empty for the zero Key.
func (k Key) ID() string {
	if k.of == nil {
		return ""
	}
	return hex.EncodeToString(k.of().id[:])
}

// String returns the id of the key.
func (k Key) String() string { return "data key " + k.ID() }

// GoString returns the id of the key.
func (k Key) GoString() string { return k.String() }

// Bytes returns a copy of the secret, to be stored under another key.
func (k Key) Bytes() []byte {
	if k.of == nil {
		return nil
	}
	return append([]byte(nil), k.of().secret[:]...)
}

// Subkey returns 32 bytes for another purpose than runs. Purposes that differ
// have keys that have nothing to do with each other.
func (k Key) Subkey(purpose string) ([]byte, error) { return k.derive(labelSub + purpose) }

func (k Key) derive(info string) ([]byte, error) {
	if k.of == nil {
		return nil, errNoKey
	}
	b, err := hkdf.Key(sha256.New, k.of().secret[:], nil, info, KeySize)
	if err != nil {
		return nil, fmt.Errorf("cipherlog: derive a key: %w", err)
	}
	return b, nil
}

var (
	// ErrKey means that an event names another data key than the log has.
	ErrKey = errors.New("cipherlog: the event is encrypted with another data key")

	errNoKey = errors.New("cipherlog: the data key is missing")
)

// runCipher encrypts and decrypts the events of one run.
type runCipher struct {
	key  [event.EncryptedKeySize]byte // names the data key
	aead cipher.AEAD
}

func (k Key) cipher(runID string) (runCipher, error) {
	secret, err := k.derive(labelRun + runID)
	if err != nil {
		return runCipher{}, err
	}
	block, _ := aes.NewCipher(secret) // it has the right length
	aead, err := cipher.NewGCM(block)
	if err != nil { // a process that may use nothing but FIPS 140
		return runCipher{}, fmt.Errorf("cipherlog: %w", err)
	}
	return runCipher{k.of().id, aead}, nil
}

// appendContent appends what canon.Marshal would return for c, without checking
// the payload a second time.
func appendContent(dst []byte, c event.EncryptedContent) ([]byte, error) {
	pairs := 2
	if c.Totals != nil {
		pairs = 3
	}
	dst = canon.AppendMap(dst, pairs)
	if c.Totals != nil {
		raw, err := canon.Marshal(c.Totals)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, "\x66totals"...), raw...)
	}
	dst = append(append(dst, "\x67payload"...), c.Payload...)
	dst = append(dst, "\x69prev_hash"...)
	if len(c.PrevHash) == 0 {
		return canon.AppendNull(dst), nil
	}
	return canon.AppendBytes(dst, c.PrevHash), nil
}

// additional returns the authenticated data: the envelope as it will be stored,
// with neither data nor nonce in the payload.
func additional(e event.Event, s event.Encrypted) []byte {
	s.Data, s.Nonce = nil, nil
	e.Payload = event.AppendEncrypted(make([]byte, 0, 96), s)
	return event.AppendEnvelope(make([]byte, 0, 256+len(e.RunID)), e)
}

// encrypt returns the stored event for ev. sum is the plain summary after ev,
// stored the prev_hash in the stored chain, and root the Merkle root of the
// stored events if ev is terminal. The nonce must be new for this cipher.
func (c runCipher) encrypt(nonce []byte, ev event.Event, sum eventlog.RunSummary, stored, root []byte) (event.Event, error) {
	in := event.EncryptedContent{PrevHash: ev.PrevHash}
	t := event.EncryptedTotals{Tools: int64(sum.ToolCallCount), CostUSD: sum.CostUSD, InputTokens: sum.InputTokens, OutputTokens: sum.OutputTokens}
	if t != (event.EncryptedTotals{}) {
		in.Totals = &t
	}
	around, err := appendContent(make([]byte, 0, 160), in)
	if err != nil {
		return event.Event{}, fmt.Errorf("cipherlog: %w", err)
	}
	in.Payload = ev.Payload
	out, s := ev, event.Encrypted{Alg: event.EncryptedAlg, Key: c.key[:], Nonce: nonce, MerkleRoot: root}
	out.PrevHash = stored
	size := len(around) + len(ev.Payload) + event.EncryptedTagSize
	payload := event.AppendEncryptedHead(make([]byte, 0, size+160), s, size)
	at := len(payload)
	if payload, err = appendContent(payload, in); err != nil {
		return event.Event{}, fmt.Errorf("cipherlog: %w", err)
	}
	payload = c.aead.Seal(payload[:at], nonce, payload[at:], additional(out, s)) // in its place
	out.Payload = event.AppendEncryptedTail(payload, s)
	return out, nil
}

// open is the inverse of encrypt.
func (c runCipher) open(e event.Event) (event.Event, event.EncryptedTotals, error) {
	var none event.EncryptedTotals
	s, ok := event.AsEncrypted(e.Payload)
	if !ok {
		return event.Event{}, none, corrupt(e, "the payload is not encrypted as all payloads here are")
	}
	if !bytes.Equal(s.Key, c.key[:]) {
		return event.Event{}, none, fmt.Errorf("%w: event %d of run %q names key %x, this is %x", ErrKey, e.Seq, e.RunID, s.Key, c.key)
	}
	text, err := c.aead.Open(nil, s.Nonce, s.Data, additional(e, s))
	if err != nil {
		return event.Event{}, none, corrupt(e, "the payload cannot be decrypted: it was changed or moved")
	}
	in, err := readContent(text)
	if err != nil {
		return event.Event{}, none, corrupt(e, "the decrypted payload does not decode: %v", err)
	}
	e.Payload, e.PrevHash = in.Payload, in.PrevHash
	if in.Totals == nil {
		return e, none, nil
	}
	return e, *in.Totals, nil
}

// readContent reads what appendContent wrote. The payload is what the rest leaves of it, and is
// not read: it is as it was encrypted.
func readContent(text []byte) (c event.EncryptedContent, err error) {
	if rest, ok := bytes.CutPrefix(text, []byte("\xa3\x66totals")); ok {
		totals, rest, err := canon.Cut(rest)
		if err == nil {
			err = canon.Unmarshal(totals, &c.Totals)
		}
		if err != nil {
			return c, err
		}
		text = rest
	} else {
		text = bytes.TrimPrefix(text, []byte("\xa2"))
	}
	payload, ok := bytes.CutPrefix(text, []byte("\x67payload"))
	for _, end := range []int{len("\x69prev_hash\xf6"), len("\x69prev_hash\x58\x20") + event.HashSize} {
		at := max(len(payload)-end, 0)
		if prev, found := bytes.CutPrefix(payload[at:], []byte("\x69prev_hash")); ok && found {
			c.Payload = payload[:at]
			c.PrevHash, _, _ = canon.CutBytes(prev)
			return c, nil
		}
	}
	return c, errors.New("it is not a payload with the hash before it")
}

func corrupt(e event.Event, format string, args ...any) error {
	return &eventlog.CorruptError{RunID: e.RunID, Seq: e.Seq, Kind: e.Kind, Invariant: "encrypted", Reason: fmt.Sprintf(format, args...)}
}
