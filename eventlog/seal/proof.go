package seal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
)

// Proof shows that a leaf is in the log of a checkpoint. Its text is a tlog-proof
// (spec/seal.md, section 5).
type Proof struct {
	Index      int64 // of the leaf, from 0
	Hashes     []Hash
	Checkpoint []byte // signed
}

const (
	proofHeader    = "c2sp.org/tlog-proof@v1\n"
	maxProofHashes = 63
)

// Text returns the proof as text.
func (p Proof) Text() []byte {
	b := fmt.Appendf(nil, "%sindex %d\n", proofHeader, p.Index)
	for _, h := range p.Hashes {
		b = fmt.Appendf(b, "%s\n", h)
	}
	return append(append(b, '\n'), p.Checkpoint...)
}

// ParseProof reads the text of a proof. It checks none of it.
func ParseProof(text []byte) (Proof, error) {
	rest, ok := bytes.CutPrefix(text, []byte(proofHeader))
	if !ok {
		return Proof{}, fmt.Errorf("seal: this is not a proof: its first line is not %q", strings.TrimSpace(proofHeader))
	}
	line, rest, _ := bytes.Cut(rest, []byte("\n"))
	digits, ok := bytes.CutPrefix(line, []byte("index "))
	index, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || err != nil || index < 0 {
		return Proof{}, fmt.Errorf("seal: %q is not the line \"index N\" of a proof", line)
	}
	p := Proof{Index: index}
	for {
		line, after, ok := bytes.Cut(rest, []byte("\n"))
		rest = after
		if !ok || len(p.Hashes) > maxProofHashes {
			return Proof{}, errors.New("seal: the proof has no empty line behind its hashes")
		}
		if len(line) == 0 {
			break
		}
		h, err := tlog.ParseHash(string(line))
		if err != nil {
			return Proof{}, fmt.Errorf("seal: line %d of the proof is not a hash", 3+len(p.Hashes))
		}
		p.Hashes = append(p.Hashes, h)
	}
	if p.Checkpoint = rest; !bytes.Equal(p.Text(), text) {
		return Proof{}, errors.New("seal: the proof is not written in its one form")
	}
	return p, nil
}

// Check reports whether the proof shows that the leaf is in the log of its checkpoint, and
// whether the checkpoint is signed as the policy requires.
func (p Proof) Check(l Leaf, policy *Policy) (Checkpoint, []Signature, error) {
	c, signatures, err := policy.Check(p.Checkpoint)
	if err != nil {
		return c, signatures, err
	}
	if p.Index >= c.Leaves {
		return c, nil, fmt.Errorf("seal: the proof is of leaf %d; the checkpoint has %d", p.Index, c.Leaves)
	}
	if err := tlog.CheckRecord(p.Hashes, c.Leaves, c.Root, p.Index, l.Hash()); err != nil {
		return c, nil, fmt.Errorf("seal: run %q is not leaf %d of the checkpoint: the proof leads to another root", l.RunID, p.Index)
	}
	return c, signatures, nil
}

// The formats of a [Statement].
const (
	runProofFormat   = "starling-run-proof/1"
	eventProofFormat = "starling-event-proof/1"
)

// Statement is a proof with its content: a run, or one event of it without the
// others (spec/seal.md, section 6).
type Statement struct {
	Leaf  Leaf
	Event *event.Event // nil for the run as a whole
	Path  []canon.Hash // of the event under the run's Merkle root
	Proof Proof
}

type statementJSON struct {
	Format       string    `json:"format"`
	Envelope     string    `json:"envelope,omitempty"`
	RunID        string    `json:"run_id,omitempty"`
	Events       uint64    `json:"events"`
	MerkleRoot   string    `json:"merkle_root"`
	TerminalHash string    `json:"terminal_hash"`
	Path         *[]string `json:"path,omitempty"`
	TlogProof    string    `json:"tlog_proof"`
}

// JSON returns the statement as a document.
func (s Statement) JSON() ([]byte, error) {
	doc := statementJSON{Format: runProofFormat, RunID: s.Leaf.RunID, Events: s.Leaf.Events,
		MerkleRoot: s.Leaf.MerkleRoot.String(), TerminalHash: s.Leaf.TerminalHash.String(), TlogProof: string(s.Proof.Text())}
	if s.Event != nil {
		envelope, err := event.Marshal(*s.Event)
		if err != nil {
			return nil, err
		}
		path := make([]string, len(s.Path))
		for i, h := range s.Path {
			path[i] = h.String()
		}
		doc.Format, doc.Envelope, doc.RunID, doc.Path = eventProofFormat, hex.EncodeToString(envelope), "", &path
	}
	text, err := display.JSON(doc, "  ")
	return append(text, '\n'), err
}

// MaxStatementBytes bounds the document of a [Statement].
const MaxStatementBytes = 64 << 20

// ParseStatement reads the document of a statement. It checks no proof.
func ParseStatement(ctx context.Context, doc []byte) (Statement, error) {
	if len(doc) > MaxStatementBytes {
		return Statement{}, fmt.Errorf("seal: a proof of %d bytes; at most %d are read", len(doc), MaxStatementBytes)
	}
	b := work.For(ctx, len(doc))
	if err := cmp.Or(b.Spend(1+len(doc)/64), b.Hold(16*len(doc))); err != nil { // read and written, as values and as texts
		return Statement{}, err
	}
	var j statementJSON
	once, err := canon.JSON(doc) // no duplicate members, and nothing after it
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(once))
		dec.DisallowUnknownFields()
		err = dec.Decode(&j)
	}
	var own []byte
	if err == nil {
		own, err = json.Marshal(j)
	}
	if err == nil {
		own, err = canon.JSON(own)
	}
	if err == nil && !bytes.Equal(own, once) { // or the same ones in other letters
		err = errors.New("it has members that do not belong there, or that are empty")
	}
	if err != nil {
		return Statement{}, fmt.Errorf("seal: this is not a proof: %w", err)
	}
	s := Statement{Leaf: Leaf{Events: j.Events, RunID: j.RunID}}
	if j.Events > math.MaxInt64 {
		return s, fmt.Errorf("seal: a proof of a run of %d events", j.Events)
	}
	isEvent := j.Format == eventProofFormat
	if !isEvent && j.Format != runProofFormat {
		return s, fmt.Errorf("seal: %q is not a format of a proof that this program knows", j.Format)
	}
	if isEvent != (j.Path != nil) || isEvent != (j.Envelope != "") || isEvent != (j.RunID == "") {
		return s, fmt.Errorf("seal: a %s has other members", j.Format)
	}
	err = errors.Join(unhex("merkle_root", j.MerkleRoot, &s.Leaf.MerkleRoot), unhex("terminal_hash", j.TerminalHash, &s.Leaf.TerminalHash))
	if isEvent && err == nil {
		err = s.parseEvent(j)
	}
	if err == nil {
		s.Proof, err = ParseProof([]byte(j.TlogProof))
	}
	return s, err
}

func (s *Statement) parseEvent(j statementJSON) error {
	envelope, err := hex.DecodeString(j.Envelope)
	if err == nil && strings.ToLower(j.Envelope) != j.Envelope {
		err = errors.New("hexadecimal in upper case")
	}
	if err != nil {
		return fmt.Errorf("seal: envelope: %w", err)
	}
	ev, err := event.Unmarshal(envelope)
	if err != nil {
		return fmt.Errorf("seal: envelope: %w", err)
	}
	s.Event, s.Leaf.RunID = &ev, ev.RunID
	for i, text := range *j.Path {
		var h canon.Hash
		if err := unhex(fmt.Sprintf("path, hash %d", i+1), text, &h); err != nil {
			return err
		}
		s.Path = append(s.Path, h)
	}
	return nil
}

func unhex(what, text string, to *canon.Hash) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(to) || strings.ToLower(text) != text {
		return fmt.Errorf("seal: %s is not a hash: want 64 lower-case hexadecimal digits", what)
	}
	*to = canon.Hash(b)
	return nil
}

// Check checks the statement: that the event is in the run, and the run in the log of the
// checkpoint, signed as the policy requires.
func (s Statement) Check(policy *Policy) (Checkpoint, []Signature, error) {
	if s.Event != nil {
		envelope, err := event.Marshal(*s.Event)
		if err != nil {
			return Checkpoint{}, nil, err
		}
		hash, seq, n := event.Hash(envelope), s.Event.Seq, s.Leaf.Events
		proven := seq < n && canon.Verify(s.Leaf.MerkleRoot, hash, seq-1, n-1, s.Path)
		if seq == n { // of the terminal event the leaf follows
			l, err := LeafOf(*s.Event, hash)
			proven = err == nil && l == s.Leaf && len(s.Path) == 0
		}
		switch {
		case seq < 1 || seq > n || s.Event.Kind.Terminal() != (seq == n):
			return Checkpoint{}, nil, fmt.Errorf("seal: event %d, %v, of a run of %d", seq, s.Event.Kind, n)
		case !proven:
			return Checkpoint{}, nil, fmt.Errorf("seal: event %d is not part of run %q: the proof leads to another root", seq, s.Leaf.RunID)
		}
	}
	return s.Proof.Check(s.Leaf, policy)
}
