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
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
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
		path := lists.Map(s.Path, canon.Hash.String)
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

// Hash is a SHA-256 hash of the log of runs.
type Hash = tlog.Hash

// Leaf is the log's commitment to a run that has ended.
type Leaf struct {
	Events       uint64 // of the run, the terminal one included
	RunID        string
	MerkleRoot   canon.Hash // over the hashes of all events but the terminal one
	TerminalHash canon.Hash
}

// leafVersion is the version of spec/seal.md.
const leafVersion = 1

// Marshal returns the leaf as it is hashed (spec/seal.md, section 1).
func (l Leaf) Marshal() []byte {
	b := canon.AppendMap(nil, 5)
	b = canon.AppendUint(canon.AppendText(b, "seal"), leafVersion)
	b = canon.AppendUint(canon.AppendText(b, "events"), l.Events)
	b = canon.AppendText(canon.AppendText(b, "run_id"), l.RunID)
	b = canon.AppendBytes(canon.AppendText(b, "merkle_root"), l.MerkleRoot[:])
	return canon.AppendBytes(canon.AppendText(b, "terminal_hash"), l.TerminalHash[:])
}

// ParseLeaf reads the leaf of a run, as [Leaf.Marshal] returns it.
func ParseLeaf(b []byte) (l Leaf, err error) {
	var p struct {
		Seal         uint64 `cbor:"seal"`
		Events       uint64 `cbor:"events"`
		RunID        string `cbor:"run_id"`
		MerkleRoot   []byte `cbor:"merkle_root"`
		TerminalHash []byte `cbor:"terminal_hash"`
	}
	if err := canon.Unmarshal(b, &p); err != nil || len(p.MerkleRoot) != event.HashSize || len(p.TerminalHash) != event.HashSize {
		return l, errors.New("seal: this is not the leaf of a run")
	}
	l = Leaf{Events: p.Events, RunID: p.RunID, MerkleRoot: canon.Hash(p.MerkleRoot), TerminalHash: canon.Hash(p.TerminalHash)}
	if p.Seal != leafVersion || !bytes.Equal(l.Marshal(), b) {
		return l, errors.New("seal: the leaf is not written in its one form")
	}
	return l, nil
}

// Removal is a leaf that records the removal of a run; the run's leaf stays
// (spec/seal.md, section 1).
type Removal struct {
	Leaf  int64     `json:"leaf"` // number of the run's leaf, from 0
	RunID string    `json:"run_id"`
	At    time.Time `json:"at"`
	By    string    `json:"by"` // as given with the removal, like Why
	Why   string    `json:"why"`
}

// Marshal returns the removal as it is hashed.
func (r Removal) Marshal() []byte {
	b := canon.AppendMap(nil, 6)
	b = canon.AppendUint(canon.AppendText(b, "seal"), leafVersion)
	b = canon.AppendText(canon.AppendText(b, "run_id"), r.RunID)
	b = canon.AppendUint(canon.AppendText(b, "removed_at"), uint64(max(r.At.UnixNano(), 0)))
	b = canon.AppendText(canon.AppendText(b, "removed_by"), r.By)
	b = canon.AppendText(canon.AppendText(b, "removed_why"), r.Why)
	return canon.AppendUint(canon.AppendText(b, "removed_leaf"), uint64(max(r.Leaf, 0)))
}

// Hash returns the hash of the leaf in the tree (RFC 6962, section 2.1).
func (l Leaf) Hash() Hash { return tlog.RecordHash(l.Marshal()) }

// LeafOf returns the leaf of a run with the given terminal event and its hash. The
// event may be encrypted.
func LeafOf(last event.Event, hash canon.Hash) (Leaf, error) {
	if !last.Kind.Terminal() {
		return Leaf{}, fmt.Errorf("seal: run %q has not ended", last.RunID)
	}
	var p struct {
		MerkleRoot []byte `cbor:"merkle_root"`
	}
	if err := canon.Unmarshal(last.Payload, &p); err != nil {
		return Leaf{}, fmt.Errorf("seal: run %q: %w", last.RunID, err)
	}
	if len(p.MerkleRoot) != len(canon.Hash{}) {
		return Leaf{}, fmt.Errorf("seal: run %q: %w", last.RunID, errNoRoot)
	}
	return Leaf{Events: last.Seq, RunID: last.RunID, MerkleRoot: canon.Hash(p.MerkleRoot), TerminalHash: hash}, nil
}

var errNoRoot = errors.New("the terminal event carries no Merkle root")

// Run is a run that was validated in the reading that returned it: its chain, its Merkle root and the
// bytes of each event, by the strict rules of [eventlog.CheckRun]. Use [ReadRun]. Whatever signs a
// statement about the runs of a database takes it from a Run.
type Run struct {
	Stored []event.Event // as stored
	Events []event.Event // as they were before they were encrypted, or Stored
	Leaf   Leaf          // zero for an open run
}

// Opener is implemented by a log that decrypts.
type Opener interface {
	// Open returns a stored event as it was before it was encrypted. Without a key for it the error
	// is [event.ErrEncrypted].
	Open(ctx context.Context, stored event.Event) (event.Event, error)
}

// ReadRun reads a run as it is stored, once, and validates it. The events of an encrypted run are
// opened one by one, and validated in this form too; the error is [event.ErrEncrypted] if open is nil
// or has no key, and the run then has its stored events.
func ReadRun(ctx context.Context, stored eventlog.EventLog, open Opener, runID string) (run Run, err error) {
	options := eventlog.CheckOptions{Strict: true, AllowOpen: true}
	opened, unread := eventlog.NewChecker(options), error(nil)
	r, err := eventlog.VisitRun(ctx, stored, runID, options, func(e event.Event) error {
		run.Stored = append(run.Stored, e)
		if _, encrypted := event.AsEncrypted(e.Payload); !encrypted || unread != nil {
			return nil
		}
		if open == nil {
			unread = fmt.Errorf("event %d: %w", e.Seq, event.ErrEncrypted)
			return nil
		}
		plain, err := open.Open(ctx, e)
		if errors.Is(err, event.ErrEncrypted) {
			unread = err
			return nil
		}
		if err == nil {
			err = opened.Add(plain)
		}
		run.Events = append(run.Events, plain)
		return err
	})
	if err != nil {
		return Run{}, err
	}
	if !r.Open {
		run.Leaf = leafOf(runID, r)
	}
	switch {
	case r.Encrypted == 0:
		run.Events = run.Stored
	case unread != nil:
		run.Events = nil
		return run, unread
	default:
		if _, err := opened.Finish(); err != nil {
			return Run{}, err
		}
	}
	return run, nil
}

// leafOf returns the leaf of a run that a check found to be valid, and that has ended.
func leafOf(runID string, r eventlog.Report) Leaf {
	return Leaf{Events: r.Events, RunID: runID, MerkleRoot: r.Root, TerminalHash: r.Head}
}

// ProveRuns proves that runs are in the newest checkpoint with exactly these events. It is [Prove],
// and [eventlog.ErrLogCorrupt] if a run is not the one that was sealed.
func ProveRuns(ctx context.Context, db eventlog.Transactor, runs ...Run) ([]Proof, error) {
	ids := lists.Map(runs, func(r Run) string { return r.Stored[0].RunID })
	leaves, proofs, err := Prove(ctx, db, ids...)
	if err != nil {
		return nil, err
	}
	for i, run := range runs {
		if leaves[i] != run.Leaf {
			return nil, &eventlog.CorruptError{RunID: ids[i], Seq: run.Leaf.Events, Kind: run.Stored[len(run.Stored)-1].Kind, Invariant: "head",
				Reason: fmt.Sprintf("the run is not the one that was sealed: its last event has the hash %v, sealed was %v", run.Leaf.TerminalHash, leaves[i].TerminalHash)}
		}
	}
	return proofs, nil
}
