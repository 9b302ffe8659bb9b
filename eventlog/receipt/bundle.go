package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
)

// CheckBundle checks the receipts that a bundle has, under a policy, and makes each statement again from
// the run that it is about. It returns their number, and a trusted key that has signed them, or "". Of an
// encrypted run the leaf alone is compared.
func CheckBundle(b seal.Bundle, policy *seal.Policy) (n int, by string, err error) {
	runs := map[string]int{}
	for i, events := range b.Runs {
		runs[events[0].RunID] = i
	}
	for line := range bytes.Lines(b.Receipts) {
		n++
		r, err := Parse(line)
		var c Checked
		if err == nil {
			c, err = r.Check(policy)
		}
		if err == nil {
			by, err = c.SignedBy, checkIn(b, runs, c.Statement)
		}
		if err != nil {
			return n, by, fmt.Errorf("receipts.ndjson: line %d: %w", n, err)
		}
	}
	return n, by, nil
}

func checkIn(b seal.Bundle, runs map[string]int, said Statement) error {
	i, ok := runs[said.Predicate.Run.ID]
	if !ok {
		return fmt.Errorf("receipt: the bundle has no run %q", said.Predicate.Run.ID)
	}
	leaf, err := b.Leaf(i)
	if err != nil {
		return err
	}
	if last := said.Subject[len(said.Subject)-1]; last.Digest["sha256"] != sha256Of(leaf.Marshal())["sha256"] {
		return fmt.Errorf("receipt: the statement is about another leaf than that of run %q", leaf.RunID)
	}
	o := Options{LeafOnly: said.Predicate.Input == nil}
	if _, has := said.Predicate.Tool.Digest["sha256"]; has {
		o.Module = func(digest canon.Hash) ([sha256.Size]byte, bool) { return sha256.Sum256(b.Modules[digest]), true }
	}
	if _, encrypted := event.AsEncrypted(b.Runs[i][0].Payload); encrypted {
		return nil
	}
	all, err := Of(b.Runs[i], leaf, o)
	if err != nil {
		return err
	}
	want, err := json.Marshal(said)
	if err != nil {
		return err
	}
	for _, s := range all {
		s.Predicate.Issuer = said.Predicate.Issuer
		if got, err := json.Marshal(s); err == nil && bytes.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("receipt: run %q does not say so: %s", leaf.RunID, said)
}
