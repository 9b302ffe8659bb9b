package eventlog_test

import (
	"errors"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/cipherlog"
	"github.com/starling-host/starling/eventlog/internal/memlog"
)

// encryptedRunOf chains payloads and returns the run as stored encrypted.
func encryptedRunOf(t *testing.T, ps ...event.Payload) []event.Event {
	t.Helper()
	key, err := cipherlog.NewKey(make([]byte, cipherlog.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	inner := memlog.New()
	log, err := cipherlog.New(inner, key, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range runOf(ps...) {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := inner.Read(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// The visible part of an encrypted run is checked, and valid runs pass.
func TestEncryptedRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		run  []event.Payload
		want string // the broken invariant; empty if valid
	}{
		"a call":                       {[]event.Payload{started(), call("a", 1), effect("a"), done("a", 1), completed()}, ""},
		"calls side by side":           {[]event.Payload{started(), call("a", 1), call("b", 1), failed("a", 1), done("b", 1), completed()}, ""},
		"turns":                        {[]event.Payload{started(), turn("1"), answer("1"), turn("2"), answer("2"), completed()}, ""},
		"a turn that the budget ended": {[]event.Payload{started(), turn("1"), trip("1"), turn("2"), answer("2"), completed()}, ""},
		"a budget between turns":       {[]event.Payload{started(), turn("1"), trip(""), answer("1"), completed()}, ""},
		"a run that failed in a turn":  {[]event.Payload{started(), turn("1"), aborted()}, ""},
		"a run that was resumed":       {[]event.Payload{started(), turn("1"), call("a", 1), event.RunResumed{}, turn("2"), answer("2"), completed()}, ""},
		"a turn inside a turn":         {[]event.Payload{started(), turn("1"), turn("2"), answer("2"), completed()}, "D6"},
		"an answer without a turn":     {[]event.Payload{started(), answer("1"), completed()}, "D6"},
		"a turn without an answer":     {[]event.Payload{started(), turn("1"), completed()}, "D6"},
		"an outcome without a call":    {[]event.Payload{started(), done("a", 1), completed()}, "D7"},
		"a call without an outcome":    {[]event.Payload{started(), call("a", 1), cancelled()}, "D7"},
	} {
		run := encryptedRunOf(t, tc.run...)
		report, err := eventlog.Check(run, eventlog.CheckOptions{Strict: true})
		var corrupt *eventlog.CorruptError
		switch {
		case tc.want == "" && (err != nil || report.Encrypted != uint64(len(run))):
			t.Errorf("%s: %d events are encrypted, %v", name, report.Encrypted, err)
		case tc.want != "" && (!errors.As(err, &corrupt) || corrupt.Invariant != tc.want):
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

func TestMixedRuns(t *testing.T) {
	plain := runOf(started(), call("a", 1), done("a", 1))
	encrypted := encryptedRunOf(t, started(), call("a", 1), done("a", 1))
	for name, run := range map[string][]event.Event{
		"plain among encrypted": {encrypted[0], relinked(plain[1], encrypted[0])},
		"encrypted among plain": {plain[0], relinked(encrypted[1], plain[0])},
	} {
		_, err := eventlog.Check(run, eventlog.CheckOptions{AllowOpen: true})
		var corrupt *eventlog.CorruptError
		if !errors.As(err, &corrupt) || corrupt.Invariant != "encrypted" || corrupt.Seq != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// relinked returns e with the hash of before as its prev_hash.
func relinked(e, before event.Event) event.Event {
	h := before.Hash()
	e.PrevHash = h[:]
	return e
}

// A Merkle root where none belongs, in an event that is otherwise as it should be.
func TestEncryptedShape(t *testing.T) {
	run := encryptedRunOf(t, started(), call("a", 1))
	s, ok := event.AsEncrypted(run[1].Payload)
	if !ok {
		t.Fatal("the payload is not encrypted")
	}
	s.MerkleRoot = make([]byte, 32)
	run[1].Payload = event.AppendEncrypted(nil, s)
	_, err := eventlog.Check(run, eventlog.CheckOptions{Strict: true, AllowOpen: true})
	var corrupt *eventlog.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Invariant != "S2" {
		t.Errorf("%v", err)
	}
}
