package event_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// reference is one line of a log that the Starling runtime wrote.
type reference struct {
	envelope []byte
	hash     string
	kind     string
}

func references(t *testing.T) []reference {
	t.Helper()
	const path = "../../../shared/vectors/starling/ref.ndjson"
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("SKIPPED: the logs of the Starling runtime are not here: %v", err)
	}
	defer f.Close()
	var refs []reference
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct{ Envelope, Hash, Kind string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		envelope, err := hex.DecodeString(line.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, reference{envelope, line.Hash, line.Kind})
	}
	if err := lines.Err(); err != nil || len(refs) == 0 {
		t.Fatalf("%s: %d lines, %v", path, len(refs), err)
	}
	return refs
}

// reencode decodes the payload of e into its struct and encodes it again.
func reencode(e event.Event) (canon.Raw, error) {
	switch e.Kind {
	case event.KindRunStarted:
		return roundTrip[event.RunStarted](e)
	case event.KindUserMessageAppended:
		return roundTrip[event.UserMessageAppended](e)
	case event.KindTurnStarted:
		return roundTrip[event.TurnStarted](e)
	case event.KindReasoningEmitted:
		return roundTrip[event.ReasoningEmitted](e)
	case event.KindAssistantMessageCompleted:
		return roundTrip[event.AssistantMessageCompleted](e)
	case event.KindToolCallScheduled:
		return roundTrip[event.ToolCallScheduled](e)
	case event.KindToolCallCompleted:
		return roundTrip[event.ToolCallCompleted](e)
	case event.KindToolCallFailed:
		return roundTrip[event.ToolCallFailed](e)
	case event.KindSideEffectRecorded:
		return roundTrip[event.SideEffectRecorded](e)
	case event.KindBudgetExceeded:
		return roundTrip[event.BudgetExceeded](e)
	case event.KindContextTruncated:
		return roundTrip[event.ContextTruncated](e)
	case event.KindRunCompleted:
		return roundTrip[event.RunCompleted](e)
	case event.KindRunFailed:
		return roundTrip[event.RunFailed](e)
	case event.KindRunCancelled:
		return roundTrip[event.RunCancelled](e)
	case event.KindRunResumed:
		return roundTrip[event.RunResumed](e)
	case event.KindTurnFailed:
		return roundTrip[event.TurnFailed](e)
	}
	return e.Payload, nil
}

func roundTrip[T event.Payload](e event.Event) (canon.Raw, error) {
	p, err := event.Decode[T](e)
	if err != nil {
		return nil, err
	}
	return event.EncodePayload(p)
}

func TestStarlingEnvelopesAndPayloadsRoundTrip(t *testing.T) {
	for i, ref := range references(t) {
		e, err := event.Unmarshal(ref.envelope)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if got := e.Kind.String(); got != ref.kind {
			t.Errorf("line %d: kind %s, want %s", i+1, got, ref.kind)
		}
		if got := e.Hash().String(); got != ref.hash {
			t.Errorf("line %d: hash %s, want %s", i+1, got, ref.hash)
		}
		if again, err := event.Marshal(e); err != nil || !bytes.Equal(again, ref.envelope) {
			t.Errorf("line %d: envelope %x, %v\nwant %x", i+1, again, err, ref.envelope)
		}
		if payload, err := reencode(e); err != nil || !bytes.Equal(payload, e.Payload) {
			t.Errorf("line %d: payload %x, %v\nwant %x", i+1, payload, err, e.Payload)
		}
	}
}

// merkleRoot is the root that a terminal event carries.
func merkleRoot(t *testing.T, e event.Event) []byte {
	t.Helper()
	var p struct {
		MerkleRoot []byte `cbor:"merkle_root"`
	}
	if err := canon.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p.MerkleRoot
}

func TestStarlingChainsAndRoots(t *testing.T) {
	runs := map[string]*canon.Tree{}
	last := map[string]canon.Hash{}
	terminals := 0
	for i, ref := range references(t) {
		e, err := event.Unmarshal(ref.envelope)
		if err != nil {
			t.Fatal(err)
		}
		tree := runs[e.RunID]
		if tree == nil {
			tree = new(canon.Tree)
			runs[e.RunID] = tree
		} else if prev := last[e.RunID]; !bytes.Equal(e.PrevHash, prev[:]) {
			t.Errorf("line %d: prev_hash %x, want %s", i+1, e.PrevHash, prev)
		}
		if e.Kind.Terminal() {
			terminals++
			if root := tree.Root(); !bytes.Equal(merkleRoot(t, e), root[:]) {
				t.Errorf("line %d: merkle_root %x, want %s", i+1, merkleRoot(t, e), root)
			}
		}
		last[e.RunID] = e.Hash()
		tree.Add(e.Hash())
	}
	if terminals == 0 {
		t.Error("no terminal event was seen")
	}
}

func TestStarlingRegistryHash(t *testing.T) {
	checked := 0
	for i, ref := range references(t) {
		e, err := event.Unmarshal(ref.envelope)
		if err != nil || e.Kind != event.KindRunStarted {
			continue
		}
		p, err := e.AsRunStarted()
		if err != nil {
			t.Fatal(err)
		}
		if got := event.RegistryHash(p.ToolSchemas); !bytes.Equal(got, p.ToolRegistryHash) {
			t.Errorf("line %d: registry hash %x, want %x", i+1, got, p.ToolRegistryHash)
		}
		checked++
	}
	if checked == 0 {
		t.Error("no RunStarted was seen")
	}
}
