package event

import (
	"bytes"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/hint"
)

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
	dst = append(dst, encryptedHead...)
	dst = canon.AppendText(dst, s.Alg)
	dst = append(dst, "\x63key"...)
	dst = canon.AppendBytes(dst, s.Key)
	dst = append(dst, "\x64data"...)
	return canon.AppendBytesHead(dst, size)
}

// AppendEncryptedTail appends the bytes after the data of s.
func AppendEncryptedTail(dst []byte, s Encrypted) []byte {
	dst = append(dst, "\x65nonce"...)
	dst = canon.AppendBytes(dst, s.Nonce)
	if len(s.MerkleRoot) > 0 {
		dst = append(dst, "\x6bmerkle_root"...)
		dst = canon.AppendBytes(dst, s.MerkleRoot)
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
