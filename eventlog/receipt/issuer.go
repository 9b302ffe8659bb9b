package receipt

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
)

// Issuer signs receipts of the runs of a log. Key is required. It is safe for concurrent use.
type Issuer struct {
	Key *seal.Key

	// LeafOnly is as in [Options].
	LeafOnly bool

	// Commits also signs each call before its first effect, in the run itself, see [Issuer.Commit].
	Commits bool

	sums sync.Map // SHA-256 of modules, by canon.Hash
}

// ErrOpen is returned for a run that has not ended.
var ErrOpen = errors.New("receipt: the run has not ended, and has no receipts yet")

// Issue returns the receipts of the calls of a run, in the order in which the calls began. Log reads
// the run, and stored has it as it is stored: they differ for a run that is encrypted. If stored is
// sealed and has the run, the receipts have the proofs.
func (i *Issuer) Issue(ctx context.Context, log, stored eventlog.EventLog, runID string) ([]*Receipt, error) {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil, err
	}
	last := events[len(events)-1]
	if !last.Kind.Terminal() {
		return nil, ErrOpen
	}
	if stored != log {
		for ev, err := range stored.Events(ctx, runID, last.Seq-1) {
			if err != nil {
				return nil, err
			}
			last = ev
		}
	}
	leaf, err := seal.LeafOf(last, last.Hash())
	if err != nil {
		return nil, err
	}
	statements, err := Of(events, leaf, Options{LeafOnly: i.LeafOnly, Module: i.module(ctx, stored)})
	if err != nil {
		return nil, err
	}
	proof, proven, err := proofOf(ctx, stored, runID)
	if err != nil {
		return nil, err
	}
	receipts := make([]*Receipt, len(statements))
	for n, s := range statements {
		if receipts[n], err = s.Sign(i.Key); err == nil && proven {
			err = receipts[n].Attach(i.Key, leaf, proof)
		}
		if err != nil {
			return nil, err
		}
	}
	return receipts, nil
}

// module returns the SHA-256 of modules that a log has. Each is read once.
func (i *Issuer) module(ctx context.Context, log eventlog.EventLog) func(canon.Hash) ([sha256.Size]byte, bool) {
	reader, ok := log.(eventlog.ModuleReader)
	if !ok {
		return nil
	}
	return func(digest canon.Hash) ([sha256.Size]byte, bool) {
		if known, ok := i.sums.Load(digest); ok {
			return known.([sha256.Size]byte), true
		}
		wasm, err := reader.Module(ctx, digest)
		if err != nil { // of a tenant, or pruned: its BLAKE3-256 is there
			return [sha256.Size]byte{}, false
		}
		sum := sha256.Sum256(wasm)
		i.sums.Store(digest, sum)
		return sum, true
	}
}

// proofOf returns the proof of a run in the newest checkpoint, if there is one.
func proofOf(ctx context.Context, stored eventlog.EventLog, runID string) (seal.Proof, bool, error) {
	db, ok := stored.(eventlog.Transactor)
	if !ok {
		return seal.Proof{}, false, nil
	}
	_, proofs, err := seal.Prove(ctx, db, runID)
	if errors.Is(err, seal.ErrNoLog) || errors.Is(err, seal.ErrNotSealed) {
		return seal.Proof{}, false, nil
	}
	if err != nil {
		return seal.Proof{}, false, err
	}
	return proofs[0], true, nil
}

// OfCall returns the receipt of a call, by its id, or of the first call for "". It is nil if there is
// none.
func OfCall(receipts []*Receipt, callID string) *Receipt {
	for _, r := range receipts {
		var s Statement
		if callID == "" || json.Unmarshal(r.Payload, &s) == nil && s.Predicate.Run.CallID == callID {
			return r
		}
	}
	return nil
}

// Committing returns Commit if the issuer commits to calls, and nil otherwise, also for a nil issuer.
func (i *Issuer) Committing() func(first, scheduling event.Event) ([]byte, error) {
	if i == nil || !i.Commits {
		return nil
	}
	return i.Commit
}

// Commit signs the statement of a call that is about to begin, given the first event of its run and
// the one that schedules it, see spec/receipt.md, section 5. It has the form of step.Config.Commit.
func (i *Issuer) Commit(first, scheduling event.Event) ([]byte, error) {
	started, err := first.AsRunStarted()
	if err != nil {
		return nil, err
	}
	call, err := scheduling.AsToolCallScheduled()
	if err != nil {
		return nil, err
	}
	s, err := scheduled(scheduling, call, started, Options{})
	if err != nil {
		return nil, err
	}
	s.PredicateType, s.Subject = ScheduledType, []Subject{{SubjectInput, s.Predicate.Input}}
	s.Predicate.Run.PrevHash = blake3Of(scheduling.PrevHash)
	if s.Predicate.Policy != nil {
		s.Predicate.Policy.Decision = ""
	}
	r, err := s.Sign(i.Key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}
