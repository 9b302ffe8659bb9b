package seal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/seal"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// TestOtherProgramsVerifyACheckpoint verifies with package note and the printed vkey alone.
func TestOtherProgramsVerifyACheckpoint(t *testing.T) {
	f := newFixture(t, 3)
	v, err := note.NewVerifier(f.key.For("example.com/runs/0123456789abcdef").VKey())
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(f.checkpoint, note.VerifierList(v))
	if err != nil || len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := note.NewSigner(f.key.Text()); err != nil {
		t.Error(err)
	}
}

// history is a growing log, with its signed checkpoints.
type history struct {
	key    *seal.Key
	origin string
	hashes tlogHashes
	n      int64
}

func (h *history) grow(t *testing.T, records ...string) {
	t.Helper()
	for _, r := range records {
		added, err := tlog.StoredHashes(h.n, []byte(r), h.hashes)
		if err != nil {
			t.Fatal(err)
		}
		h.hashes = append(h.hashes, added...)
		h.n++
	}
}

// request returns a request to a witness that has seen old leaves.
func (h *history) request(t *testing.T, old int64) []byte {
	t.Helper()
	root, err := tlog.TreeHash(h.n, h.hashes)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := seal.Checkpoint{Origin: h.origin, Leaves: h.n, Root: root}.Sign(h.key)
	if err != nil {
		t.Fatal(err)
	}
	r := seal.Request{Old: old, Signed: signed}
	if old > 0 && old < h.n {
		if r.Proof, err = tlog.ProveTree(h.n, old, h.hashes); err != nil {
			t.Fatal(err)
		}
	}
	return r.Text()
}

func TestWitness(t *testing.T) {
	key, other := fixedKey(t, "example.com/runs", 1), fixedKey(t, "example.com/runs", 9)
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "witness.json")
	open := func() *seal.Witness {
		t.Helper()
		w, err := seal.OpenWitness(fixedKey(t, "witness.example", 2), trust, file)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := open()
	h := &history{key: key, origin: key.NewOrigin()}
	now := time.Unix(1_700_000_000, 0)
	add := func(what string, body []byte, want error) {
		t.Helper()
		line, err := w.Add(body, now)
		var conflict *seal.Conflict
		switch {
		case want == nil && err == nil:
			if !strings.HasPrefix(string(line), "— witness.example ") {
				t.Errorf("%s: %q", what, line)
			}
		case errors.As(want, &conflict):
			var got *seal.Conflict
			if !errors.As(err, &got) || *got != *conflict {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		case !errors.Is(err, want):
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	h.grow(t, "a", "b", "c")
	add("the first checkpoint", h.request(t, 0), nil)
	add("the same one", h.request(t, 3), nil)
	add("one that begins elsewhere", h.request(t, 0), &seal.Conflict{Leaves: 3})
	fork := *h
	fork.hashes = append(tlogHashes{}, h.hashes...)
	h.grow(t, "d", "e")
	w = open() // which has forgotten nothing
	add("one that has grown", h.request(t, 3), nil)
	add("one that has shrunk", fork.request(t, 3), &seal.Conflict{Leaves: 5})
	fork.grow(t, "x", "y")
	add("another history of the same length", fork.request(t, 5), &seal.Conflict{Leaves: 5})
	fork.grow(t, "z")
	add("another history", fork.request(t, 5), seal.ErrInconsistent)
	add("an old that is larger", h.request(t, 6), seal.ErrMalformed)
	unknown := &history{key: other, origin: "other.example/0123456789abcdef"}
	unknown.grow(t, "a")
	add("a log of another name", unknown.request(t, 0), seal.ErrUnknownLog)
	unknown.origin = h.origin
	add("another key of that name", unknown.request(t, 0), seal.ErrUntrusted)
	for _, body := range []string{"", "old 1\n\n", "old x\n\nz", "old -1\n\nz\n\n— a b\n", "old 0\nnonsense\n\nx"} {
		add("nonsense", []byte(body), seal.ErrMalformed)
	}

	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.OpenWitness(key, trust, file); err == nil {
		t.Error("a damaged state was read")
	}
}

// TestWitnessesOfOneStateCosignOneHistory asks two processes with one state file, played
// by two witnesses, to cosign two histories of one log at once.
func TestWitnessesOfOneStateCosignOneHistory(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "witness.json")
	h := &history{key: key, origin: key.NewOrigin()}
	h.grow(t, "a", "b", "c")
	fork := *h
	fork.hashes = append(tlogHashes{}, h.hashes...)
	h.grow(t, "d")
	fork.grow(t, "x")
	var witnesses []*seal.Witness
	for range 2 {
		w, err := seal.OpenWitness(fixedKey(t, "witness.example", 2), trust, file)
		if err != nil {
			t.Fatal(err)
		}
		witnesses = append(witnesses, w)
	}
	first, second := make(chan error, 1), make(chan error, 1)
	one, other := h.request(t, 0), fork.request(t, 0)
	go func() { _, err := witnesses[0].Add(one, time.Now()); first <- err }()
	go func() { _, err := witnesses[1].Add(other, time.Now()); second <- err }()
	if a, b := <-first, <-second; (a == nil) == (b == nil) {
		t.Errorf("two histories: %v, %v; want one of them cosigned", a, b)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, body := range [][]byte{one, other} {
		if _, err := witnesses[0].Add(body, time.Now()); err == nil {
			t.Error("a witness without its state cosigned")
		}
	}
}
