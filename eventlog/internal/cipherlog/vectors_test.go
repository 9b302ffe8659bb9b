package cipherlog

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/vectortest"
	"github.com/starling-host/starling/eventlog/logtest"
)

// encryptedLine is a line of encrypted.jsonl. All but the name is hexadecimal.
type encryptedLine struct {
	Name       string `json:"name"`
	DataKey    string `json:"data_key"`
	KeyID      string `json:"key_id"`
	RunKey     string `json:"run_key"`
	Plain      string `json:"plain"` // envelope
	Content    string `json:"content"`
	Additional string `json:"additional"`
	Envelope   string `json:"envelope"`
	Hash       string `json:"hash"`
}

func TestEncryptedVectors(t *testing.T) {
	t.Parallel()
	secret := make([]byte, KeySize)
	for i := range secret {
		secret[i] = byte(i)
	}
	key, err := NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	var want []encryptedLine
	c := logtest.Chain{RunID: "acme/01JGQ4T0000000000000000000", Clock: 1_735_689_600_123_456_789}
	args, _ := event.EncodePayload(map[string]string{"name": "Ada"})
	at := state{}
	if at.cipher, err = key.cipher(c.RunID); err != nil {
		t.Fatal(err)
	}
	for _, ev := range []event.Event{
		c.Start("greet"),
		c.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "greet", Args: args, Attempt: 1}),
		c.Next(event.ToolCallCompleted{CallID: "c1", Result: args, Attempt: 1}),
		c.Complete(),
	} {
		line, next := encryptLine(t, key, at, ev)
		want, at = append(want, line), next
	}
	checkLines(t, vectortest.Check(t, "encrypted.jsonl", want))
}

// encryptLine seals ev under its own number as the nonce.
func encryptLine(t *testing.T, key Key, at state, ev event.Event) (encryptedLine, state) {
	t.Helper()
	nonce := binary.BigEndian.AppendUint64(make([]byte, 4, event.EncryptedNonceSize), ev.Seq)
	encrypted, next, err := at.nextWith(nonce, ev.RunID, ev)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := event.AsEncrypted(encrypted.Payload)
	if !ok {
		t.Fatalf("%x is not an encrypted payload", []byte(encrypted.Payload))
	}
	content, err := at.cipher.aead.Open(nil, nonce, s.Data, additional(encrypted, s))
	if err != nil {
		t.Fatal(err)
	}
	runKey, err := key.derive(labelRun + ev.RunID)
	if err != nil {
		t.Fatal(err)
	}
	hash := encrypted.Hash()
	return encryptedLine{
		Name: fmt.Sprintf("%d %s", ev.Seq, ev.Kind), DataKey: hex.EncodeToString(key.Bytes()), KeyID: key.ID(),
		RunKey: hex.EncodeToString(runKey), Plain: hex.EncodeToString(event.AppendEnvelope(nil, ev)),
		Content: hex.EncodeToString(content), Additional: hex.EncodeToString(additional(encrypted, s)),
		Envelope: hex.EncodeToString(event.AppendEnvelope(nil, encrypted)), Hash: hash.String(),
	}, next
}

// checkLines decrypts the lines of the file.
func checkLines(t *testing.T, lines []encryptedLine) {
	t.Helper()
	var stored, plain []event.Event
	for _, line := range lines {
		key, err := NewKey(unhex(t, line.DataKey))
		if err != nil {
			t.Fatal(err)
		}
		e, err := event.Unmarshal(unhex(t, line.Envelope))
		if err != nil {
			t.Fatal(err)
		}
		c, err := key.cipher(e.RunID)
		if err != nil {
			t.Fatal(err)
		}
		opened, _, err := c.open(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(event.AppendEnvelope(nil, opened)); got != line.Plain {
			t.Errorf("%s opens as %s", line.Name, got)
		}
		stored, plain = append(stored, e), append(plain, opened)
	}
	for name, run := range map[string][]event.Event{"stored": stored, "plain": plain} {
		r, err := eventlog.Check(run, eventlog.CheckOptions{Strict: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := map[string]uint64{"stored": 4}[name]; r.Encrypted != want {
			t.Errorf("%s: %d events are encrypted, want %d", name, r.Encrypted, want)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// appendContent and event.AppendEncrypted write by hand what the codec would write.
func TestEncodingsAgreeWithTheCodec(t *testing.T) {
	t.Parallel()
	totals := &event.EncryptedTotals{Tools: 1, CostUSD: 0.5, InputTokens: 1 << 40, OutputTokens: 7}
	for _, in := range []event.EncryptedContent{
		{Payload: canon.Raw{0xa0}},
		{Payload: canon.Raw{0xa0}, PrevHash: make([]byte, 32), Totals: totals},
	} {
		got, err := appendContent(nil, in)
		want, wantErr := canon.Marshal(in)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || wantErr != nil {
			t.Errorf("%v, %v\n%s", err, wantErr, diff)
		}
	}
	for _, root := range [][]byte{nil, make([]byte, 32)} {
		s := event.Encrypted{Alg: event.EncryptedAlg, Key: make([]byte, 16), Data: make([]byte, 300), Nonce: make([]byte, 12), MerkleRoot: root}
		want, err := canon.Marshal(s)
		if diff := cmp.Diff(want, event.AppendEncrypted(nil, s)); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}
