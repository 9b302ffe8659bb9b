package event_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog/event"
)

func TestAsEncryptedTakesOneSpelling(t *testing.T) {
	good := event.Encrypted{Alg: event.EncryptedAlg, Key: make([]byte, 16), Data: make([]byte, 16), Nonce: make([]byte, 12)}
	if _, ok := event.AsEncrypted(event.AppendEncrypted(nil, good)); !ok {
		t.Fatal("an encrypted payload is not taken for one")
	}
	with := func(change func(*event.Encrypted)) []byte {
		s := good
		change(&s)
		return event.AppendEncrypted(nil, s)
	}
	for name, p := range map[string][]byte{
		"nothing":                nil,
		"an empty map":           {0xa0},
		"another algorithm":      with(func(s *event.Encrypted) { s.Alg = "A128GCM" }),
		"a key id that is short": with(func(s *event.Encrypted) { s.Key = s.Key[1:] }),
		"no key id":              with(func(s *event.Encrypted) { s.Key = nil }),
		"a nonce that is long":   with(func(s *event.Encrypted) { s.Nonce = make([]byte, 13) }),
		"data without a tag":     with(func(s *event.Encrypted) { s.Data = make([]byte, 15) }),
		"a root that is short":   with(func(s *event.Encrypted) { s.MerkleRoot = make([]byte, 31) }),
		"a tail":                 append(with(func(*event.Encrypted) {}), 0),
		"a fifth field": append(append([]byte{0xa5}, with(func(*event.Encrypted) {})[1:]...),
			0x6b, 'm', 'e', 'r', 'k', 'l', 'e', '_', 'r', 'o', 'o', 'x', 0xf6),
		"a root that is null": append(append([]byte{0xa5}, with(func(*event.Encrypted) {})[1:]...),
			0x6b, 'm', 'e', 'r', 'k', 'l', 'e', '_', 'r', 'o', 'o', 't', 0xf6),
	} {
		if _, ok := event.AsEncrypted(p); ok {
			t.Errorf("%s: %x is taken for an encrypted payload", name, p)
		}
	}
}
