package receipt_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/vectortest"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// fixedKey returns a key with a public private half, for vectors.
func fixedKey(t testing.TB, name string, seed byte) *seal.Key {
	t.Helper()
	text, _, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := seal.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func raw(t testing.TB, doc string) canon.Raw {
	t.Helper()
	r, err := canon.FromJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runs are runs with calls of every kind that a receipt tells apart.
func runs(t testing.TB) [][]event.Event {
	module, policy, mandate := canon.Sum([]byte("module")), canon.Sum([]byte("policy")), canon.Sum([]byte("mandate"))
	begin := func(id string) *logtest.Chain { return &logtest.Chain{RunID: id, Clock: 1_700_000_000_000_000_000} }
	started := func(c *event.Caller, refs ...event.ToolSchemaRef) event.RunStarted {
		return event.RunStarted{SchemaVersion: 1, Goal: "call", ToolSchemas: refs, Caller: c}
	}
	sandboxed := event.ToolSchemaRef{Name: "dice", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: module[:], ABI: "starling:v1", CostTable: 1, Policy: &event.PolicyRef{Operator: policy[:]}}}
	server := event.ToolSchemaRef{Name: "search", SchemaHash: make([]byte, 32), Source: "mcp:search"}

	a := begin("run-module")
	answered := []event.Event{
		a.Next(started(&event.Caller{KeyID: "k7", Client: "claude-code", Version: "2.1", Subject: "ada", Delegation: [][]byte{mandate[:]}}, sandboxed, server)),
		a.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "dice", Args: raw(t, `{"sides":6.0,"of":"<bone>"}`), Attempt: 1}),
		a.Next(event.SideEffectRecorded{Name: "GET https://dice.example/", CallID: "c1", Request: []byte("GET / HTTP/1.1\r\nHost: dice.example\r\n\r\n"),
			Value: encode(t, event.Exchange{Status: -1, Text: "denied", Decision: event.Verdicts{{Policy: policy[:], Side: "operator", Denied: "no rule"}}})}),
		a.Next(event.ToolCallFailed{CallID: "c1", Error: "try again", ErrorType: event.ErrorTool, Attempt: 1}),
		a.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "dice", Args: raw(t, `{"sides":6.0,"of":"<bone>"}`), Attempt: 2}),
		a.Next(event.ToolCallScheduled{CallID: "c2", TurnID: "direct", ToolName: "search", Args: raw(t, `{}`), Attempt: 1, ParentID: "c1"}),
		a.Next(event.ToolCallCompleted{CallID: "c2", Result: raw(t, `"two\nlines <b>"`), Attempt: 1}),
		a.Next(event.ToolCallCompleted{CallID: "c1", Result: raw(t, `{"rolled":4}`), Attempt: 2, Meter: event.Meter{Fuel: 12345, PeakMemory: 65536}}),
		a.Complete(),
	}

	b := begin("run-refused")
	refused := []event.Event{
		b.Next(started(nil, sandboxed)),
		b.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "dice", Args: raw(t, `{}`), Attempt: 1}),
		b.Next(event.SideEffectRecorded{Name: event.EffectPolicy, CallID: "c1", Value: encode(t, event.Verdicts{{Policy: policy[:], Side: "operator", Denied: "not named"}})}),
		b.Next(event.ToolCallFailed{CallID: "c1", Error: "denied", ErrorType: event.ErrorTool, Attempt: 1, Final: true}),
		b.Complete(),
	}

	c := begin("run-killed")
	killed := []event.Event{
		c.Next(started(nil, sandboxed)),
		c.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "dice", Args: raw(t, `{}`), Attempt: 1}),
		c.Next(event.ToolCallFailed{CallID: "c1", Error: "out of fuel", ErrorType: event.ErrorFuel, Attempt: 1, Final: true, Meter: event.Meter{Fuel: 20_000_000}}),
		c.Complete(),
	}
	return [][]event.Event{answered, refused, killed}
}

func encode(t testing.TB, v any) canon.Raw {
	t.Helper()
	b, err := canon.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vector is a line of receipt.jsonl or receipt-refused.jsonl.
type vector struct {
	Name    string `json:"name"`
	Policy  string `json:"policy"`
	Receipt []byte `json:"receipt"`          // the document
	Reason  string `json:"reason,omitempty"` // why it is refused
}

// hashes are the hashes of a tree in memory.
type hashes []tlog.Hash

func (h hashes) ReadHashes(places []int64) (out []tlog.Hash, err error) {
	for _, p := range places {
		out = append(out, h[p])
	}
	return out, nil
}

// sealed returns the receipts of all calls, before and after a checkpoint.
func sealed(t testing.TB) (all []vector) {
	t.Helper()
	key := fixedKey(t, "example.com/runs", 1)
	policy := "log " + key.VKey() + "\nquorum none\n"
	var tree hashes
	var leaves []seal.Leaf
	for i, events := range runs(t) {
		last := events[len(events)-1]
		leaf, err := seal.LeafOf(last, last.Hash())
		if err != nil {
			t.Fatal(err)
		}
		more, err := tlog.StoredHashes(int64(i), leaf.Marshal(), tree)
		if err != nil {
			t.Fatal(err)
		}
		leaves, tree = append(leaves, leaf), append(tree, more...)
	}
	n := int64(len(leaves))
	root, err := tlog.TreeHash(n, tree)
	if err != nil {
		t.Fatal(err)
	}
	const origin = "example.com/runs/0123456789abcdef"
	signed, err := seal.Checkpoint{Origin: origin, Leaves: n, Root: root}.Sign(key.For(origin))
	if err != nil {
		t.Fatal(err)
	}
	for i, events := range runs(t) {
		for _, leafOnly := range []bool{false, true} {
			statements, err := receipt.Of(events, leaves[i], receipt.Options{LeafOnly: leafOnly})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range statements {
				r, err := s.Sign(key)
				if err != nil {
					t.Fatal(err)
				}
				name := events[0].RunID + " " + s.Predicate.Run.CallID
				if leafOnly {
					name += ", leaf only"
				} else {
					all = append(all, vector{Name: name, Policy: policy, Receipt: document(t, r)})
				}
				path, err := tlog.ProveRecord(n, int64(i), tree)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Attach(key, leaves[i], seal.Proof{Index: int64(i), Hashes: path, Checkpoint: signed}); err != nil {
					t.Fatal(err)
				}
				all = append(all, vector{Name: name + ", in a checkpoint", Policy: policy, Receipt: document(t, r)})
			}
		}
	}
	return all
}

func document(t testing.TB, r *receipt.Receipt) []byte {
	t.Helper()
	doc, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func check(t testing.TB, v vector) (receipt.Checked, error) {
	t.Helper()
	policy, err := seal.ParsePolicy(v.Policy)
	if err != nil {
		t.Fatal(err)
	}
	r, err := receipt.Parse(t.Context(), v.Receipt)
	if err != nil {
		return receipt.Checked{}, err
	}
	return r.Check(t.Context(), policy)
}

func TestReceiptsOfEachKindOfCall(t *testing.T) {
	all := sealed(t)
	got := map[string]string{}
	for _, v := range all {
		c, err := check(t, v)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if len(v.Receipt) > 4<<10 {
			t.Errorf("%s has %d bytes", v.Name, len(v.Receipt))
		}
		p := c.Statement.Predicate
		got[v.Name] = strings.Join([]string{p.Outcome, p.ErrorType, string(p.Evidence)}, " ")
		if c.SignedBy == "" || (c.Checkpoint != nil) != strings.HasSuffix(v.Name, "checkpoint") {
			t.Errorf("%s: signed by %q, checkpoint %v", v.Name, c.SignedBy, c.Checkpoint)
		}
		for text, call := range map[string]string{`{"rolled":4}`: "run-module c1", "two\nlines <b>": "run-module c2"} {
			if want := strings.HasPrefix(v.Name, call) && !strings.Contains(v.Name, "leaf only"); c.Statement.Result([]byte(text)) != want {
				t.Errorf("%s: the text %q is its result: %t", v.Name, text, !want)
			}
		}
	}
	for name, want := range map[string]string{
		"run-module c1": "completed  reexecutable", "run-module c2": "completed  recorded", "run-refused c1": "denied tool reexecutable",
		"run-killed c1": "failed fuel reexecutable",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// TestForgedReceipts changes one field of a statement and signs it with another key, or not again.
func TestForgedReceipts(t *testing.T) {
	all := sealed(t)
	stranger := fixedKey(t, "example.com/runs", 9)
	other := fixedKey(t, "example.com/others", 1)
	tried := 0
	for _, v := range all {
		r, err := receipt.Parse(t.Context(), v.Receipt)
		if err != nil {
			t.Fatal(err)
		}
		var fields any
		if err := json.Unmarshal(r.Payload, &fields); err != nil {
			t.Fatal(err)
		}
		each(fields, func(change func() (undo func())) {
			undo := change()
			forged := *r
			forged.Payload, _ = json.Marshal(fields)
			undo()
			tried++
			if _, err := check(t, vector{Policy: v.Policy, Receipt: document(t, &forged)}); err == nil {
				t.Errorf("%s: taken with the payload %s", v.Name, forged.Payload)
			}
		})
		for _, k := range []*seal.Key{stranger, other} {
			c, err := check(t, v)
			if err != nil {
				t.Fatal(err)
			}
			again, err := c.Statement.Sign(k)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := check(t, vector{Policy: v.Policy, Receipt: document(t, again)}); err == nil {
				t.Errorf("%s: taken with the signature of %s", v.Name, k.VKey())
			}
		}
	}
	if tried < 200 {
		t.Errorf("only %d forgeries", tried)
	}
}

// each calls try with a change of every scalar in a document.
func each(doc any, try func(change func() (undo func()))) {
	changed := func(v any) any {
		switch v := v.(type) {
		case string:
			return v + "0"
		case float64:
			return v + 1
		}
		return nil
	}
	switch doc := doc.(type) {
	case map[string]any:
		for name, v := range doc {
			if c := changed(v); c != nil {
				try(func() func() { doc[name] = c; return func() { doc[name] = v } })
			} else {
				each(v, try)
			}
		}
	case []any:
		for i, v := range doc {
			if c := changed(v); c != nil {
				try(func() func() { doc[i] = c; return func() { doc[i] = v } })
			} else {
				each(v, try)
			}
		}
	}
}

// TestMutatedReceipts changes bytes of documents. A mutant is refused, or says the same.
func TestMutatedReceipts(t *testing.T) {
	all := sealed(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		v := all[r.IntN(len(all))]
		before, err := check(t, v)
		if err != nil {
			t.Fatal(err)
		}
		mutant := v
		mutant.Receipt = bytes.Clone(v.Receipt)
		switch at := r.IntN(len(mutant.Receipt)); r.IntN(3) {
		case 0:
			mutant.Receipt[at] ^= 1 << r.IntN(8)
		case 1:
			mutant.Receipt = append(mutant.Receipt[:at], mutant.Receipt[at+1:]...)
		case 2:
			mutant.Receipt = append(mutant.Receipt[:at], append([]byte{byte(r.IntN(256))}, mutant.Receipt[at:]...)...)
		}
		after, err := check(t, mutant)
		if err != nil {
			continue
		}
		if a, b := string(jsonOf(before.Statement)), string(jsonOf(after.Statement)); a != b || after.SignedBy != before.SignedBy {
			t.Errorf("taken: %s\nfrom %s", mutant.Receipt, v.Receipt)
		}
	}
}

func jsonOf(v any) []byte {
	doc, _ := json.Marshal(v)
	return doc
}

func TestVectors(t *testing.T) {
	all := sealed(t)
	vectortest.Check(t, "receipt.jsonl", all)
	vectortest.Check(t, "receipt-refused.jsonl", refused(t, all))
}

// refused are receipts with one fault each.
func refused(t *testing.T, all []vector) (faulty []vector) {
	key := fixedKey(t, "example.com/runs", 1)
	whole, single := all[1], all[0]
	add := func(name, policy string, doc []byte) {
		_, err := check(t, vector{Policy: policy, Receipt: doc})
		if err == nil {
			t.Fatalf("%s is taken: %s", name, doc)
		}
		faulty = append(faulty, vector{Name: name, Policy: policy, Receipt: doc, Reason: err.Error()})
	}
	changed := func(name string, v vector, change func(r *receipt.Receipt)) {
		r, err := receipt.Parse(t.Context(), v.Receipt)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		add(name, v.Policy, document(t, r))
	}
	resigned := func(name string, change func(s *receipt.Statement)) {
		c, err := check(t, single)
		if err != nil {
			t.Fatal(err)
		}
		change(&c.Statement)
		r, err := c.Statement.Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		add(name, single.Policy, document(t, r))
	}
	replaced := func(name string, v vector, from, to string) {
		add(name, v.Policy, bytes.Replace(v.Receipt, []byte(from), []byte(to), 1))
	}
	other := fixedKey(t, "example.com/others", 1)
	add("a stranger's key", "log "+fixedKey(t, "example.com/runs", 9).VKey()+"\nquorum none\n", single.Receipt)
	add("issued under another name", "log "+other.VKey()+"\nquorum none\n", single.Receipt)
	add("not JSON", single.Policy, []byte("receipt"))
	replaced("a further member", single, `{"payloadType"`, `{"note":1,"payloadType"`)
	replaced("a member twice", single, `{"payloadType"`, `{"payload":"e30=","payloadType"`)
	replaced("a member in another case", single, `"payload"`, `"Payload"`)
	replaced("base64 with a line break", single, `"payload":"ey`, `"payload":"e\ny`)
	replaced("another payload type", single, "in-toto+json", "in-toto+yaml")
	changed("without a signature", single, func(r *receipt.Receipt) { r.Signatures = nil })
	changed("another key id", single, func(r *receipt.Receipt) { r.Signatures[0].KeyID = "SHA256:0" })
	changed("another signature", single, func(r *receipt.Receipt) { r.Signatures[0].Sig[0] ^= 1 })
	changed("a statement with a space", single, func(r *receipt.Receipt) {
		r.Payload = bytes.Replace(r.Payload, []byte(":"), []byte(": "), 1)
	})
	changed("another tool", single, func(r *receipt.Receipt) {
		r.Payload = bytes.Replace(r.Payload, []byte(`"dice"`), []byte(`"mice"`), 1)
	})
	resigned("another type of statement", func(s *receipt.Statement) { s.Type = "https://in-toto.io/Statement/v0.1" })
	resigned("another predicate", func(s *receipt.Statement) { s.PredicateType += "beta" })
	resigned("no subject", func(s *receipt.Statement) { s.Subject = []receipt.Subject{} })
	resigned("a third subject", func(s *receipt.Statement) { s.Subject = append(s.Subject, s.Subject[1]) })
	resigned("a subject by BLAKE3", func(s *receipt.Statement) {
		s.Subject[1].Digest = receipt.Digest{"blake3": s.Subject[1].Digest["sha256"]}
	})
	resigned("no outcome", func(s *receipt.Statement) { s.Predicate.Outcome = "" })
	resigned("the result of a call that failed", func(s *receipt.Statement) { s.Predicate.Outcome = receipt.Failed })
	resigned("an outcome behind the end of the run", func(s *receipt.Statement) { s.Predicate.Run.Ended = s.Predicate.Run.Events + 1 })
	changed("the leaf of another run", whole, func(r *receipt.Receipt) {
		r.Leaf = bytes.Replace(r.Leaf, []byte("run-module"), []byte("run-modulo"), 1)
	})
	changed("a leaf without its proof", whole, func(r *receipt.Receipt) { r.Proof, r.COSE = "", nil })
	changed("the proof of another leaf", whole, func(r *receipt.Receipt) { r.Proof = strings.Replace(r.Proof, "index 0", "index 1", 1) })
	changed("a checkpoint that nobody signed", whole, func(r *receipt.Receipt) { r.Proof = strings.Replace(r.Proof, "\n3\n", "\n4\n", 1) })
	changed("a COSE receipt with another signature", whole, func(r *receipt.Receipt) { r.COSE[len(r.COSE)-1] ^= 1 })
	changed("a COSE receipt of another path", whole, func(r *receipt.Receipt) { r.COSE[len(r.COSE)-100] ^= 1 })
	changed("a COSE receipt alone", whole, func(r *receipt.Receipt) { r.Leaf, r.Proof = nil, "" })
	return faulty
}

func TestReceiptsNeedAWholeRun(t *testing.T) {
	for _, events := range runs(t) {
		if _, err := eventlog.Check(events, eventlog.CheckOptions{}); err != nil {
			t.Errorf("%s: %v", events[0].RunID, err)
		}
		last := events[len(events)-1]
		leaf, err := seal.LeafOf(last, last.Hash())
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]event.Event{nil, events[:len(events)-1], events[1:]} {
			if _, err := receipt.Of(part, leaf, receipt.Options{}); err == nil {
				t.Errorf("%d of %d events had receipts", len(part), len(events))
			}
		}
	}
}

// TestStatementsAreStrict makes statements of runs that only the strict rules refuse.
func TestStatementsAreStrict(t *testing.T) {
	for name, events := range logtest.Lenient("run") {
		last := events[len(events)-1]
		if _, err := receipt.Of(events, must(seal.LeafOf(last, last.Hash())), receipt.Options{}); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkReceipt is what a call pays for its receipt: the statement and its signature.
func BenchmarkReceipt(b *testing.B) {
	key, events := fixedKey(b, "example.com/runs", 1), runs(b)[2]
	last := events[len(events)-1]
	leaf, err := seal.LeafOf(last, last.Hash())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		statements, err := receipt.Of(events, leaf, receipt.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := statements[0].Sign(key); err != nil {
			b.Fatal(err)
		}
	}
}

// TestReceiptsInABundle are made again from the runs beside them, so that a signature on anything else
// does not help.
func TestReceiptsInABundle(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	b := seal.Bundle{Runs: runs(t), Modules: map[canon.Hash][]byte{canon.Sum([]byte("module")): []byte("module")}}
	var statements []receipt.Statement
	for i, events := range b.Runs {
		leaf, err := b.Leaf(i)
		if err != nil {
			t.Fatal(err)
		}
		some, err := receipt.Of(events, leaf, receipt.Options{LeafOnly: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		statements = append(statements, some...)
	}
	check := func(all ...receipt.Statement) (int, error) {
		b.Receipts = nil
		for _, s := range all {
			r, err := s.Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			b.Receipts = append(append(b.Receipts, document(t, r)...), '\n')
		}
		file, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := seal.OpenBundle(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := receipt.CheckBundle(again, trust)
		return n, err
	}
	if n, err := check(statements...); n != len(statements) || err != nil {
		t.Errorf("%d of %d receipts are right: %v", n, len(statements), err)
	}
	for _, forge := range []func(s *receipt.Statement){
		func(s *receipt.Statement) { s.Predicate.Tool.Name = "mice" },
		func(s *receipt.Statement) { s.Predicate.Fuel++ },
		func(s *receipt.Statement) { s.Subject[0].Digest = s.Subject[1].Digest },
		func(s *receipt.Statement) { s.Predicate.Evidence = receipt.Recorded },
		func(s *receipt.Statement) { s.Predicate.Run.ID = "run-elsewhere" },
		func(s *receipt.Statement) {
			s.Predicate.Tool.Digest = receipt.Digest{"sha256": strings.Repeat("0", 64)}
		},
	} {
		c, err := receipt.Of(b.Runs[0], must(b.Leaf(0)), receipt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		forge(&c[0])
		if _, err := check(c[0]); err == nil {
			t.Errorf("taken: %s", c[0])
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
