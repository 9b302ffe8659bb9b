package eventview

import (
	"context"
	"iter"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve/internal/share"
)

// Relation is the result of comparing the events with the same number in two runs.
type Relation string

// The relations.
const (
	Match Relation = "match"  // the same kind and payload, but for what differs between any two runs
	Diff  Relation = "diff"   // another kind or payload
	OnlyA Relation = "only-a" // the second run has ended
	OnlyB Relation = "only-b" // the first run has ended
)

// Pair is the events of one number in two runs.
type Pair struct {
	Seq      uint64
	A, B     event.Event // the zero Event where a run has none
	Relation Relation

	// The first difference of two payloads of one kind, as [event.Diff] gives it.
	Field, InA, InB string
}

// Comparison is two runs, aligned by number.
type Comparison struct {
	Pairs                     []Pair // the requested pairs
	Match, Diff, OnlyA, OnlyB int    // of all that were examined
	First                     uint64 // number of the first pair that differs, or zero
	Examined                  int
	Capped                    bool // there are more pairs than were examined

	kept int // bytes of the payloads in Pairs
}

// DiffOptions selects pairs. The zero value selects none, and only the figures about all pairs are
// returned.
type DiffOptions struct {
	From  uint64 // number of the first pair
	Limit int    // pairs at most

	// DifferentOnly leaves out the pairs that match.
	DifferentOnly bool

	// MaxExamined bounds how far the runs are read. Zero is 50000.
	MaxExamined int
}

const maxExamined = 50000

// Compare aligns two runs by the numbers of their events. Times, durations and the
// hashes over them differ between any two runs and are left aside, and so are the
// random names that a run gives to turns and calls.
func (v View) Compare(ctx context.Context, a, b string, o DiffOptions) (Comparison, error) {
	if o.MaxExamined <= 0 {
		o.MaxExamined = maxExamined
	}
	if err := v.Reserve(ctx, a, b); err != nil {
		return Comparison{}, err
	}
	var c Comparison
	for pair, err := range v.pairs(ctx, a, b) {
		if err != nil {
			return Comparison{}, err
		}
		if c.Examined == o.MaxExamined || c.kept > share.Kept {
			c.Capped = true
			break
		}
		c.add(pair, o)
	}
	return c, nil
}

func (c *Comparison) add(pair Pair, o DiffOptions) {
	c.Examined++
	switch pair.Relation {
	case Match:
		c.Match++
	case Diff:
		c.Diff++
	case OnlyA:
		c.OnlyA++
	case OnlyB:
		c.OnlyB++
	}
	if pair.Relation != Match && c.First == 0 {
		c.First = pair.Seq
	}
	if pair.Seq >= o.From && len(c.Pairs) < o.Limit && !(o.DifferentOnly && pair.Relation == Match) {
		c.Pairs = append(c.Pairs, pair)
		c.kept += max(len(pair.A.Payload), len(pair.B.Payload))
	}
}

// pairs reads two runs in step.
func (v View) pairs(ctx context.Context, a, b string) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		nextA, stopA := iter.Pull2(v.Events(ctx, a, 0))
		defer stopA()
		nextB, stopB := iter.Pull2(v.Events(ctx, b, 0))
		defer stopB()
		for seq := uint64(1); ; seq++ {
			inA, errA, okA := nextA()
			inB, errB, okB := nextB()
			if !okA && !okB {
				return
			}
			err := errA
			if err == nil {
				err = errB
			}
			if !yield(newPair(seq, inA, inB, okA, okB), err) || err != nil {
				return
			}
		}
	}
}

func newPair(seq uint64, a, b event.Event, inA, inB bool) Pair {
	pair := Pair{Seq: seq, A: a, B: b, Relation: Diff}
	switch {
	case !inB:
		pair.Relation = OnlyA
	case !inA:
		pair.Relation = OnlyB
	case a.Kind == b.Kind:
		var same bool
		if pair.Field, pair.InA, pair.InB, same = event.Diff(lasting(a.Payload), lasting(b.Payload)); same {
			pair.Relation = Match
		}
	}
	return pair
}

// passing are the fields of payloads that differ between any two runs.
var passing = []string{"duration_ms", "duration_us", "merkle_root", "turn_id", "call_id", "parent_id", "idemp_key", "wait_ms", "provider_request_id", "raw_response_hash"}

// lasting returns a payload without the fields that differ in every execution. A payload that is
// not a map is returned unchanged.
func lasting(payload canon.Raw) canon.Raw {
	var fields map[string]canon.Raw
	if canon.Unmarshal(payload, &fields) != nil || fields == nil {
		return payload
	}
	for _, name := range passing {
		delete(fields, name)
	}
	rest, err := canon.Marshal(fields)
	if err != nil {
		return payload
	}
	return rest
}
