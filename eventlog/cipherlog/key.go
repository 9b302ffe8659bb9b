package cipherlog

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// KeySize is the length of a data key in bytes.
const KeySize = 32

// The labels of what is derived from a data key. No two purposes share a key.
const (
	labelID  = "starling-host data key id 1\x00"
	labelRun = "starling-host run key 1\x00"
	labelSub = "starling-host subkey 1\x00"
)

// Key is the data key of one tenant. Printing it shows its id and nothing else,
// also where it is part of something else that is printed: package fmt asks no
// methods of a value that it meets in an unexported field, and follows pointers
// under some verbs, but it cannot look into a function. The zero value is no key.
type Key struct{ of func() *material }

type material struct {
	secret [KeySize]byte
	id     [16]byte
}

// NewKey makes a key of 32 random bytes, of which it keeps a copy.
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

// ID names the key. It is derived from the key, so that one id can never stand
// for two, and says nothing about it. It is empty for the zero Key.
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

// Bytes returns a copy of the secret, for whoever stores it under another key.
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
