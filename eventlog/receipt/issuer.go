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
	"github.com/starling-host/starling/internal/work"
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

// Issue returns the receipts of the calls of a run, in the order in which the calls began. It signs
// what [seal.ReadRun] has validated: stored has the run as it is stored, and open decrypts it; open may
// be nil. If stored is sealed and has the run, the receipts have the proofs, and a run that is not the
// one that was sealed is [eventlog.ErrLogCorrupt].
func (i *Issuer) Issue(ctx context.Context, stored eventlog.EventLog, open seal.Opener, runID string) ([]*Receipt, error) {
	run, err := seal.ReadRun(ctx, stored, open, runID)
	if err != nil {
		return nil, err
	}
	var proof seal.Proof
	if db, ok := stored.(eventlog.Transactor); ok && run.Leaf.Events > 0 {
		switch proofs, err := seal.ProveRuns(ctx, db, run); {
		case err == nil:
			proof = proofs[0]
		case !errors.Is(err, seal.ErrNoLog) && !errors.Is(err, seal.ErrNotSealed):
			return nil, err
		}
	}
	return i.Sign(ctx, stored, run, proof)
}

// Sign is [Issuer.Issue] for a run that was read. Modules has its modules, if it is an
// [eventlog.ModuleReader], and proof is that of the run, or empty.
func (i *Issuer) Sign(ctx context.Context, modules eventlog.EventLog, run seal.Run, proof seal.Proof) ([]*Receipt, error) {
	if run.Leaf.Events == 0 {
		return nil, ErrOpen
	}
	var failed error
	statements, err := statementsOf(work.Trusted(ctx), run.Events, run.Leaf, Options{LeafOnly: i.LeafOnly, Module: i.module(ctx, modules, &failed)})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	receipts := make([]*Receipt, len(statements))
	for n, s := range statements {
		if receipts[n], err = s.Sign(i.Key); err == nil && proof.Checkpoint != nil {
			err = receipts[n].Attach(i.Key, run.Leaf, proof)
		}
		if err != nil {
			return nil, err
		}
	}
	return receipts, nil
}

// module returns the SHA-256 of modules that a log has. Each is read once. A module that is there and
// was changed is an error in failed.
func (i *Issuer) module(ctx context.Context, log eventlog.EventLog, failed *error) func(canon.Hash) ([sha256.Size]byte, bool) {
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
			if !errors.Is(err, eventlog.ErrModuleNotFound) {
				*failed = err
			}
			return [sha256.Size]byte{}, false
		}
		sum := sha256.Sum256(wasm)
		i.sums.Store(digest, sum)
		return sum, true
	}
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
	of := &maker{work: work.Trusted(context.Background()), started: started}
	s, err := of.scheduled(scheduling, call)
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
