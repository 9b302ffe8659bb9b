package event_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog/event"
)

func TestAsSealedTakesOneSpelling(t *testing.T) {
	good := event.Sealed{Alg: event.SealedAlg, Key: make([]byte, 16), Data: make([]byte, 16), Nonce: make([]byte, 12)}
	if _, ok := event.AsSealed(event.AppendSealed(nil, good)); !ok {
		t.Fatal("a sealed payload is not taken for one")
	}
	with := func(change func(*event.Sealed)) []byte {
		s := good
		change(&s)
		return event.AppendSealed(nil, s)
	}
	for name, p := range map[string][]byte{
		"nothing":                nil,
		"an empty map":           {0xa0},
		"another algorithm":      with(func(s *event.Sealed) { s.Alg = "A128GCM" }),
		"a key id that is short": with(func(s *event.Sealed) { s.Key = s.Key[1:] }),
		"no key id":              with(func(s *event.Sealed) { s.Key = nil }),
		"a nonce that is long":   with(func(s *event.Sealed) { s.Nonce = make([]byte, 13) }),
		"data without a tag":     with(func(s *event.Sealed) { s.Data = make([]byte, 15) }),
		"a root that is short":   with(func(s *event.Sealed) { s.MerkleRoot = make([]byte, 31) }),
		"a tail":                 append(with(func(*event.Sealed) {}), 0),
		"a fifth field": append(append([]byte{0xa5}, with(func(*event.Sealed) {})[1:]...),
			0x6b, 'm', 'e', 'r', 'k', 'l', 'e', '_', 'r', 'o', 'o', 'x', 0xf6),
		"a root that is null": append(append([]byte{0xa5}, with(func(*event.Sealed) {})[1:]...),
			0x6b, 'm', 'e', 'r', 'k', 'l', 'e', '_', 'r', 'o', 'o', 't', 0xf6),
	} {
		if _, ok := event.AsSealed(p); ok {
			t.Errorf("%s: %x is taken for a sealed payload", name, p)
		}
	}
}
