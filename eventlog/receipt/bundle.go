package receipt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/work"
)

// CheckBundle checks the receipts that a bundle has, under a policy, and makes the statements again from
// the runs that they are about. It returns their number, and a trusted key that has signed them, or "".
// Of an encrypted run the leaf alone is compared.
func CheckBundle(b seal.Bundle, policy *seal.Policy) (n int, by string, err error) {
	c := &bundleCheck{b: b, work: b.Work(), runs: map[string]*bundledRun{}, sums: map[canon.Hash][sha256.Size]byte{}}
	for i, events := range b.Runs {
		c.runs[events[0].RunID] = &bundledRun{number: i}
	}
	for line := range bytes.Lines(b.Receipts) {
		n++
		r, err := parse(c.work, line)
		var checked Checked
		if err == nil {
			checked, err = r.check(c.work, policy)
		}
		if err == nil {
			by, err = checked.SignedBy, c.compare(checked.Statement)
		}
		if err != nil {
			return n, by, fmt.Errorf("receipts.ndjson: line %d: %w", n, err)
		}
	}
	return n, by, nil
}

// bundleCheck is the state of checking the receipts of a bundle. The statements of a run are made once,
// and a module is hashed once, however many receipts there are.
type bundleCheck struct {
	b    seal.Bundle
	work *work.Budget
	runs map[string]*bundledRun
	sums map[canon.Hash][sha256.Size]byte
}

type bundledRun struct {
	number    int
	leaf      string // the digest of its leaf; empty until it was asked for
	encrypted bool
	calls     map[string]Statement // with everything that a statement may leave out
}

// compare requires that the run of the bundle says what a statement says.
func (c *bundleCheck) compare(said Statement) error {
	run, ok := c.runs[said.Predicate.Run.ID]
	if !ok {
		return fmt.Errorf("receipt: the bundle has no run %q", said.Predicate.Run.ID)
	}
	if run.leaf == "" {
		if err := c.make(run); err != nil {
			return err
		}
	}
	if last := said.Subject[len(said.Subject)-1]; last.Digest["sha256"] != run.leaf {
		return fmt.Errorf("receipt: the statement is about another leaf than that of run %q", said.Predicate.Run.ID)
	}
	if run.encrypted {
		return nil
	}
	s, made := run.calls[said.Predicate.Run.CallID]
	s.Predicate.Issuer = said.Predicate.Issuer
	if said.Predicate.Input == nil { // of somebody who leaves out both, see [Options]
		s.Predicate.Input, s.Subject = nil, s.Subject[max(0, len(s.Subject)-1):]
	}
	if _, has := said.Predicate.Tool.Digest["sha256"]; !has && s.Predicate.Tool.Digest != nil {
		s.Predicate.Tool.Digest = maps.Clone(s.Predicate.Tool.Digest)
		delete(s.Predicate.Tool.Digest, "sha256")
	}
	if !made || !reflect.DeepEqual(s, said) {
		return fmt.Errorf("receipt: run %q does not say so: %s", said.Predicate.Run.ID, said)
	}
	return nil
}

// make makes the leaf and the statements of a run.
func (c *bundleCheck) make(run *bundledRun) error {
	leaf, err := c.b.Leaf(run.number)
	if err != nil {
		return err
	}
	events := c.b.Runs[run.number]
	if _, run.encrypted = event.AsEncrypted(events[0].Payload); !run.encrypted {
		all, err := statementsOf(c.work, events, leaf, Options{Module: c.sum})
		if err != nil {
			return err
		}
		run.calls = make(map[string]Statement, len(all))
		for _, s := range all {
			run.calls[s.Predicate.Run.CallID] = s
		}
	}
	run.leaf = sha256Of(leaf.Marshal())["sha256"]
	return nil
}

// sum returns the SHA-256 of a module, if the bundle has it.
func (c *bundleCheck) sum(digest canon.Hash) ([sha256.Size]byte, bool) {
	sum, known := c.sums[digest]
	if wasm, ok := c.b.Modules[digest]; !known && ok {
		sum, known = sha256.Sum256(wasm), true
		c.sums[digest] = sum
	}
	return sum, known
}

// CheckEvidence checks what vouches for the runs of a bundle: the proofs that a checkpoint has them, its
// signatures, and the receipts, see [CheckBundle]. A bundle without any of it is valid only under a
// policy that trusts nobody.
func CheckEvidence(b seal.Bundle, policy *seal.Policy) (signatures []seal.Signature, receipts int, by string, err error) {
	if len(b.Proofs) == 0 && len(b.Receipts) == 0 && !policy.TrustsNobody() {
		return nil, 0, "", errors.New("seal: the bundle is not sealed, so no key that you trust has signed it")
	}
	if _, signatures, err = b.CheckProofs(policy); err == nil {
		receipts, by, err = CheckBundle(b, policy)
	}
	return signatures, receipts, by, err
}
