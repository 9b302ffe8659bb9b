package seal

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"golang.org/x/mod/sumdb/tlog"
)

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
