package starling

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
)

// Seal adds the ended runs to the database's log of runs, and signs a checkpoint, see
// [seal.Seal].
func (db *DB) Seal(ctx context.Context, key *seal.Key, older ...string) (seal.Result, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return seal.Result{}, err
	}
	return seal.Seal(ctx, stored(log), key, older...)
}

// Verify checks every sealed run of the database, as stored, against the newest checkpoint, and
// the given evidence, see [seal.Verify]. A nil policy trusts no key.
func (db *DB) Verify(ctx context.Context, policy *seal.Policy, given seal.Evidence) (seal.Report, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return seal.Report{}, err
	}
	log = stored(log)
	modules := newModuleChecks(log)
	return seal.Verify(ctx, log, policy, given, func(ctx context.Context, ids []string, found func(string, eventlog.Report, error) error) error {
		check := func(ctx context.Context, id string) (Validation, error) {
			if _, err := log.Run(ctx, id); errors.Is(err, eventlog.ErrRunNotFound) {
				return Validation{RunID: id, Err: err}, nil
			}
			return modules.validate(ctx, log, id)
		}
		return inOrder(ctx, ids, check, func(v Validation) error { return found(v.RunID, v.Report, v.Err) })
	})
}

// Prove proves that a run is in the newest checkpoint or, if seq is not 0, that its event
// seq is. [DB.Find] resolves the name of the run.
func (db *DB) Prove(ctx context.Context, run string, seq uint64) (seal.Statement, error) {
	log, id, err := db.find(ctx, run)
	if errors.Is(err, eventlog.ErrRunNotFound) && run != LastRun {
		id, err = run, nil // a removed run still has a proof
	}
	if err != nil {
		return seal.Statement{}, err
	}
	log = stored(log)
	if seq > 0 {
		return seal.ProveEvent(ctx, log, id, seq)
	}
	leaves, proofs, err := seal.Prove(ctx, log, id)
	if err != nil {
		return seal.Statement{}, err
	}
	return seal.Statement{Leaf: leaves[0], Proof: proofs[0]}, nil
}

// ErrNoReceipts is returned by [DB.Receipts] of a database without an issuer.
var ErrNoReceipts = errors.New("starling: no key signs receipts: set Options.Receipts")

// Receipts returns the receipts of the calls of a run that has ended, in the order in which the calls
// began, see package receipt. If a checkpoint has the run, they prove it. [DB.Find] resolves the name
// of the run.
func (db *DB) Receipts(ctx context.Context, run string) ([]*receipt.Receipt, error) {
	if db.o.Receipts == nil {
		return nil, ErrNoReceipts
	}
	log, id, err := db.find(ctx, run)
	if err != nil {
		return nil, err
	}
	return db.o.Receipts.Issue(ctx, stored(log), opener(log), id)
}

// Bundle collects runs with their modules and, if the database was ever sealed, proofs that
// they are in its newest checkpoint. [DB.Find] resolves the names. The error is
// [seal.ErrNotSealed] if the newest checkpoint lacks a run, and [eventlog.ErrLogCorrupt] if a run is
// invalid or is not the one that was sealed. Open runs are in no checkpoint,
// so a bundle of open runs alone has no proofs. With [Options].Archived the runs and their modules are
// those of that database, and the proofs are of this one. If [Options].Receipts signs them, the bundle has the
// receipts of the calls.
func (db *DB) Bundle(ctx context.Context, runs ...string) (b seal.Bundle, err error) {
	log, err := db.Log(ctx)
	if err != nil {
		return b, err
	}
	below := stored(log)
	from := below
	if db.o.Archived != nil {
		from = db.o.Archived
	}
	read, open := make([]seal.Run, len(runs)), 0
	for i, name := range runs {
		id, err := FindRun(ctx, from, name)
		if err != nil {
			return b, err
		}
		// A run that cannot be decrypted is in the bundle as it is stored, like any run of a tenant.
		if read[i], err = seal.ReadRun(ctx, from, opener(log), id); err == nil || errors.Is(err, event.ErrEncrypted) {
			err = b.Add(ctx, read[i].Stored, from)
		}
		if err != nil && !errors.Is(err, event.ErrEncrypted) {
			return b, err
		}
		if read[i].Leaf.Events == 0 {
			open++
		}
	}
	b.Proofs, err = seal.ProveRuns(ctx, below, read...)
	if err != nil && !errors.Is(err, seal.ErrNoLog) && !(errors.Is(err, seal.ErrNotSealed) && open == len(runs)) {
		return b, err
	}
	for i, run := range read {
		if db.o.Receipts == nil || run.Leaf.Events == 0 || run.Events == nil {
			continue
		}
		var proof seal.Proof
		if b.Proofs != nil {
			proof = b.Proofs[i]
		}
		receipts, err := db.o.Receipts.Sign(ctx, from, run, proof)
		if err != nil {
			return b, err
		}
		for _, r := range receipts {
			line, err := json.Marshal(r)
			if err != nil {
				return b, err
			}
			b.Receipts = append(append(b.Receipts, line...), '\n')
		}
	}
	return b, nil
}

// BundleOptions configure the verification of a bundle. The zero value trusts no key and
// executes every run.
type BundleOptions struct {
	Policy        *seal.Policy  // the keys to trust; nil trusts none
	WithoutReplay bool          // check without executing
	Timeout       time.Duration // of all executions; 0 for none
	Executed      func(Verdict) // called after each execution, unless it is nil
	Engine        EngineOptions
	Execute       Executor // see [ReplayOptions]
}

// BundleVerdict is the result of verifying a bundle.
type BundleVerdict struct {
	Invalid error // why the bundle is invalid; the other fields are then as far as it was read

	Bundle      seal.Bundle // the contents
	Certificate seal.Certificate
	Sealed      bool
	Checkpoint  seal.Checkpoint  // if Sealed
	Signatures  []seal.Signature // of the keys that the policy trusts
	Receipts    int              // that the bundle has; each says what its run says
	ReceiptsBy  string           // the trusted key that signed them; empty if the policy trusts nobody
	Runs        []Verdict        // of the runs that were executed, in their order
}

// Identical reports whether the bundle is valid and every run was executed and is
// identical.
func (v BundleVerdict) Identical() bool {
	for _, run := range v.Runs {
		if !run.Identical() {
			return false
		}
	}
	return v.Invalid == nil && len(v.Runs) == len(v.Certificate.Runs)
}

// VerifyBundle checks a bundle offline: its bytes, its runs and modules, its proofs and
// signatures. Then it executes each run again and compares every event. The verdict reports
// defects; an error means that there is no verdict.
func VerifyBundle(ctx context.Context, file []byte, o BundleOptions) (v BundleVerdict, err error) {
	b, certificate, err := seal.OpenBundle(ctx, file)
	if v.Bundle, v.Certificate, v.Invalid = b, certificate, err; err != nil {
		return v, ctx.Err() // a bundle that was not read to its end is not invalid
	}
	if v.Sealed = len(b.Proofs) > 0; v.Sealed {
		v.Checkpoint, _ = seal.ParseCheckpoint(b.Proofs[0].Checkpoint) // which OpenBundle has parsed
	}
	if v.Signatures, v.Receipts, v.ReceiptsBy, v.Invalid = receipt.CheckEvidence(b, o.Policy); v.Invalid != nil || o.WithoutReplay {
		return v, ctx.Err()
	}
	// A bundle from somebody else may take years to execute. The verdict lists the runs
	// that were not replayed in time.
	bounded, cancel := within(ctx, o.Timeout)
	defer cancel()
	r := &Replayer{o: ReplayOptions{Execute: o.Execute}, store: b, engine: lazyEngine{o: o.Engine}}
	if o.Execute == nil {
		started, err := r.engine.start(ctx)
		if err != nil {
			return v, err
		}
		r.modules = guest.NewRecorded(started, b, nil, agentfile.Offline)
	}
	defer r.Close()
	ids, byID := make([]string, len(b.Runs)), map[string][]event.Event{}
	for i, events := range b.Runs {
		ids[i] = events[0].RunID
		byID[ids[i]] = events
	}
	replay := func(ctx context.Context, id string) (Verdict, error) {
		verdict, err := r.execute(bounded, byID[id])
		if ctx.Err() != nil {
			return Verdict{}, ctx.Err()
		}
		return Verdict{Verdict: verdict, RunID: id, Refused: err}, nil
	}
	err = inOrder(ctx, ids, replay, func(run Verdict) error {
		v.Runs = append(v.Runs, run)
		if o.Executed != nil {
			o.Executed(run)
		}
		return nil
	})
	return v, err
}

// BundleDocument is the output of "starling-host verify FILE.starling -o json".
type BundleDocument struct {
	Verdict    string                   `json:"verdict"` // "identical", "valid", "invalid", or the worst verdict of a run
	Error      string                   `json:"error,omitempty"`
	Sealed     bool                     `json:"sealed"`
	Trusted    bool                     `json:"trusted"` // a key that was given has signed the checkpoint
	Checkpoint *seal.CheckpointDocument `json:"checkpoint,omitempty"`
	Signatures []seal.Signature         `json:"signatures,omitempty"`
	Receipts   int                      `json:"receipts,omitempty"`
	Runs       []seal.RunFacts          `json:"runs,omitempty"`
	Replays    []agent.ReplayDocument   `json:"replays,omitempty"`
}

// Document returns the verdict as a document.
func (v BundleVerdict) Document() BundleDocument {
	doc := BundleDocument{Verdict: "valid", Sealed: v.Sealed, Trusted: len(v.Signatures) > 0, Signatures: v.Signatures, Receipts: v.Receipts, Runs: v.Certificate.Runs,
		Replays: lists.Map(v.Runs, Verdict.Document)}
	if v.Sealed {
		doc.Checkpoint = v.Checkpoint.Document()
	}
	switch {
	case v.Invalid != nil:
		doc.Verdict, doc.Error = agent.Invalid, PlainError(v.Invalid)
	case v.Identical():
		doc.Verdict = agent.Identical
	}
	for _, worse := range []string{agent.NotDecided, agent.NotReplayed, agent.Diverged, agent.Invalid} {
		if slices.ContainsFunc(doc.Replays, func(run agent.ReplayDocument) bool { return run.Verdict == worse }) {
			doc.Verdict = worse
		}
	}
	return doc
}
