package cipherlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/cipherlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

const canary = "canary-5f3c1e"

// secretRun returns a run with the canary in every text.
func secretRun(id string) []event.Event {
	c := logtest.Chain{RunID: id, Clock: 1_700_000_000_000_000_000}
	text, _ := event.EncodePayload(canary)
	return []event.Event{
		c.Start(canary),
		c.Next(event.TurnStarted{TurnID: "t1"}),
		c.Next(event.AssistantMessageCompleted{TurnID: "t1", Text: canary, InputTokens: 12, OutputTokens: 3, CostUSD: 0.25}),
		c.Next(event.ToolCallScheduled{CallID: canary, TurnID: "t1", ToolName: canary, Args: text, Attempt: 1}),
		c.Next(event.SideEffectRecorded{Name: canary, Value: text, CallID: canary, Request: []byte(canary)}),
		c.Next(event.ToolCallCompleted{CallID: canary, Result: text, Attempt: 1, Meter: event.Meter{Log: canary}}),
		c.Complete(),
	}
}

// keep appends a run and waits for it.
func keep(t testing.TB, log eventlog.EventLog, evs []event.Event) {
	t.Helper()
	for _, e := range evs {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Sync(t.Context(), evs[0].RunID); err != nil {
		t.Fatal(err)
	}
}

// encrypted returns runs as stored under a key.
func encrypted(t testing.TB, key byte, runs ...[]event.Event) (all [][]event.Event) {
	t.Helper()
	inner := store.Memory()
	for _, run := range runs {
		keep(t, over(t, inner, key), run)
		got, err := inner.Read(t.Context(), run[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	return all
}

// fixed is a log with the content that an attacker has put into it.
type fixed struct {
	eventlog.EventLog
	events []event.Event
}

func (f fixed) Events(_ context.Context, _ string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for _, e := range f.events {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

// readAll reads the attacker's events under a key.
func readAll(t testing.TB, events []event.Event, key byte) error {
	t.Helper()
	_, err := over(t, fixed{events: events}, key).Read(t.Context(), events[0].RunID)
	return err
}

// relink gives events the hashes that an attacker would give them, who can write
// to the file: the stored chain is in order, and so is the root.
func relink(events []event.Event) []event.Event {
	var head canon.Hash
	var tree canon.Tree
	for i := range events {
		events[i].PrevHash = nil
		if i > 0 {
			events[i].PrevHash = bytes.Clone(head[:])
		}
		if s, ok := event.AsEncrypted(events[i].Payload); ok && events[i].Kind.Terminal() {
			root := tree.Root()
			s.MerkleRoot = root[:]
			events[i].Payload = event.AppendEncrypted(nil, s)
		}
		head = events[i].Hash()
		tree.Add(head)
	}
	return events
}

// clone copies events so that a change of one changes no other.
func clone(events []event.Event) []event.Event {
	out := slices.Clone(events)
	for i := range out {
		out[i].Payload, out[i].PrevHash = bytes.Clone(out[i].Payload), bytes.Clone(out[i].PrevHash)
	}
	return out
}

func TestCipherlogCoversEveryByte(t *testing.T) {
	t.Parallel()
	run := encrypted(t, 1, secretRun("acme/r"))[0]
	if err := readAll(t, run, 1); err != nil {
		t.Fatal(err)
	}
	try := func(what string, change func([]event.Event)) {
		t.Helper()
		bad := clone(run)
		change(bad)
		if err := readAll(t, bad, 1); err == nil {
			t.Errorf("%s: it was read", what)
		}
		if _, err := eventlog.Check(bad, eventlog.CheckOptions{Strict: true}); err == nil && what != "the last event" {
			t.Errorf("%s: the stored chain is valid", what)
		}
		// Even if the attacker computes all hashes anew, the event does not open.
		if err := readAll(t, relink(bad), 1); err == nil && bad[len(bad)-1].Hash() != run[len(run)-1].Hash() {
			t.Errorf("%s, with new hashes: it was read", what)
		}
	}
	for i := range run {
		what := fmt.Sprintf("event %d", i+1)
		if i == len(run)-1 {
			what = "the last event" // whose hash nothing in the run has
		}
		for at := range run[i].Payload {
			try(what, func(b []event.Event) { b[i].Payload[at] ^= 1 << (at % 8) })
		}
		try(what, func(b []event.Event) { b[i].Timestamp++ })
		try(what, func(b []event.Event) { b[i].Kind = event.KindUserMessageAppended })
		try(what, func(b []event.Event) { b[i].Seq++ })
		try(what, func(b []event.Event) { b[i].RunID += "x" })
		for at := range run[i].PrevHash {
			bad := clone(run)
			bad[i].PrevHash[at] ^= 0x10
			if err := readAll(t, bad, 1); err == nil {
				t.Errorf("%s: byte %d of prev_hash was changed, and it was read", what, at)
			}
		}
	}
}

func TestCiphertextsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	// Two runs with equal plain text, and a third that begins as the first does.
	runs := encrypted(t, 1, secretRun("acme/a"), secretRun("acme/b"))
	for i := range runs[0] {
		for j := range runs[0] {
			for from, source := range runs {
				if from == 0 && i == j {
					continue
				}
				bad := clone(runs[0])
				bad[i].Payload = bytes.Clone(source[j].Payload)
				if err := readAll(t, relink(bad), 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
					t.Errorf("event %d has the payload of event %d of run %d: %v", i+1, j+1, from, err)
				}
			}
		}
	}
	whole := clone(runs[1]) // all of run b under the name of run a
	for i := range whole {
		whole[i].RunID = "acme/a"
	}
	if err := readAll(t, relink(whole), 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("a run under another name: %v", err)
	}
	short := clone(runs[0])[:5] // an event taken from the middle, the rest moved up
	short = append(short[:2], short[3:]...)
	for i := range short {
		short[i].Seq = uint64(i + 1)
	}
	if err := readAll(t, relink(short), 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("a run without its third event: %v", err)
	}
}

// A plain event added to a tenant's run is refused, and so is an event with a
// shortened ciphertext.
func TestDowngradeAndTruncation(t *testing.T) {
	t.Parallel()
	plain := secretRun("acme/r")
	run := encrypted(t, 1, plain)[0]
	for i := range run {
		bad := clone(run)
		bad[i].Payload = plain[i].Payload
		relink(bad)
		if err := readAll(t, bad, 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("event %d in plain text: %v", i+1, err)
		}
		if _, err := eventlog.Check(bad, eventlog.CheckOptions{}); err == nil {
			t.Errorf("event %d in plain text: the run is valid", i+1)
		}
		s, _ := event.AsEncrypted(run[i].Payload)
		for _, n := range []int{0, 1, event.EncryptedTagSize - 1, event.EncryptedTagSize, len(s.Data) - 1} {
			short := s
			short.Data = s.Data[:n]
			bad[i].Payload = event.AppendEncrypted(nil, short)
			if err := readAll(t, relink(bad), 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
				t.Errorf("event %d cut to %d bytes: %v", i+1, n, err)
			}
		}
	}
	if err := readAll(t, plain, 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("a whole run in plain text: %v", err)
	}
}

func TestWrongKeyAndNoKey(t *testing.T) {
	t.Parallel()
	inner := store.Memory()
	keep(t, over(t, inner, 1), secretRun("acme/r"))
	other := over(t, inner, 2)
	if _, err := other.Read(t.Context(), "acme/r"); !errors.Is(err, cipherlog.ErrKey) {
		t.Errorf("another key reads: %v", err)
	}
	if _, err := other.Run(t.Context(), "acme/r"); !errors.Is(err, cipherlog.ErrKey) {
		t.Errorf("another key finds: %v", err)
	}
	c := logtest.Chain{RunID: "acme/r"}
	c.Start("")
	if err := other.Append(t.Context(), "acme/r", c.Effect(1)); err == nil {
		t.Error("another key goes on with the run")
	}
	if _, err := cipherlog.New(inner, cipherlog.Key{}, ""); err == nil {
		t.Error("a log without a key was made")
	}
	// The key is gone. The chain is still in order, and all of it is encrypted.
	r, err := eventlog.CheckRun(t.Context(), inner, "acme/r", eventlog.CheckOptions{Strict: true})
	if err != nil || r.Events != 7 || r.Encrypted != 7 || !r.HeadKept || r.Terminal != event.KindRunCompleted {
		t.Errorf("%+v, %v", r, err)
	}
	// A key's id does not carry over to another key.
	run := encrypted(t, 1, secretRun("acme/r"))[0]
	foreign := encrypted(t, 2, secretRun("acme/r"))[0]
	for i := range run {
		s, _ := event.AsEncrypted(foreign[i].Payload)
		mine, _ := event.AsEncrypted(run[i].Payload)
		s.Key = mine.Key
		run[i].Payload = event.AppendEncrypted(nil, s)
	}
	if err := readAll(t, relink(run), 1); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("events of another key under this key's id: %v", err)
	}
}

func TestAccessorsRefuseEncryptedPayloads(t *testing.T) {
	t.Parallel()
	run := encrypted(t, 1, secretRun("acme/r"))[0]
	if _, err := run[0].AsRunStarted(); !errors.Is(err, event.ErrEncrypted) {
		t.Errorf("%v", err)
	}
}

func TestNonces(t *testing.T) {
	t.Parallel()
	log := store.Memory()
	seen := map[string]bool{}
	for i := range 20 { // the same events again and again, as after a pruning
		run := logtest.Finished("acme/r", 50)
		keep(t, over(t, log, 1), run)
		stored, err := log.Read(t.Context(), "acme/r")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range stored {
			s, ok := event.AsEncrypted(e.Payload)
			if !ok || seen[string(s.Nonce)] || seen[string(s.Data)] {
				t.Fatalf("round %d, event %d: encrypted %v, with a nonce or data that was used", i, e.Seq, ok)
			}
			seen[string(s.Nonce)], seen[string(s.Data)] = true, true
		}
		if _, err := log.PruneRuns(t.Context(), eventlog.PruneOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing that a run contains is in the files, except its id.
func TestTheFileHoldsNoPlainText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inner, err := store.OpenFile(t.Context(), filepath.Join(dir, "log.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	log := over(t, inner, 1)
	keep(t, log, secretRun("acme/r"))
	if found := grep(t, dir, canary); len(found) > 0 { // with the WAL
		t.Errorf("the canary is in %v", found)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if found := grep(t, dir, canary); len(found) > 0 {
		t.Errorf("the canary is in %v", found)
	}
	if found := grep(t, dir, "acme/r"); len(found) == 0 {
		t.Error("the test looks into the wrong files")
	}
}

func grep(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, f.Name())
		}
	}
	return found
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	key := keyOf(t, 'K')
	held := struct{ key cipherlog.Key }{key}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		text := fmt.Sprintf(verb+verb, key, held)
		for _, leak := range []string{"KKKK", "4b4b4b", "75 75", "0x4b, 0x4b"} {
			if strings.Contains(text, leak) {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
}
