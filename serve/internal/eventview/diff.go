package eventview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/serve/internal/share"
)

// Relation is the result of comparing an event of one run with its counterpart in another.
type Relation string

// The relations.
const (
	Match Relation = "match"  // the same kind and payload, but for what differs between any two runs
	Diff  Relation = "diff"   // another kind or payload
	OnlyA Relation = "only-a" // the second run has no counterpart
	OnlyB Relation = "only-b" // the first run has none
)

// Pair is two events that stand for the same thing in two runs.
type Pair struct {
	Position int         // in the alignment, from 1
	Call     string      // that they belong to, such as "#3 fetch", or empty
	A, B     event.Event // the zero Event where a run has none
	Relation Relation

	// The first difference of two payloads of one kind, as [event.Diff] gives it.
	Field, InA, InB string
}

// Seq is the number of the event in the first run, or in the second if the first has none.
func (p Pair) Seq() uint64 {
	if p.A.Seq == 0 {
		return p.B.Seq
	}
	return p.A.Seq
}

// Comparison is two runs, aligned by their calls.
type Comparison struct {
	Pairs                     []Pair // the requested pairs
	Match, Diff, OnlyA, OnlyB int    // of all that were examined
	First                     Pair   // the first that differs, without its events' payloads; its position is zero without one
	Next                      int    // position of the pair to continue from, or zero
	Examined                  int
	Capped                    bool // one of the runs has more events than were examined

	kept int // bytes of the payloads in Pairs
}

// DiffOptions selects pairs. The zero value selects none, and only the figures about all pairs are
// returned.
type DiffOptions struct {
	From  int // position of the first pair
	Limit int // pairs at most

	// DifferentOnly leaves out the pairs that match.
	DifferentOnly bool

	// MaxExamined bounds how many events of each run are read. Zero is 50000.
	MaxExamined int
}

const maxExamined = 50000

// Compare aligns two runs. A call is compared with the call of the same tool and arguments, or else
// with the next one of the same tool, whatever the order in which parallel calls took turns; every
// other event with the next of its kind. Times, durations and the hashes over them differ between
// any two runs and are left aside, and so are the random names that a run gives to turns and calls.
func (v View) Compare(ctx context.Context, a, b string, o DiffOptions) (Comparison, error) {
	if o.MaxExamined <= 0 {
		o.MaxExamined = maxExamined
	}
	if err := v.Reserve(ctx, a, b); err != nil {
		return Comparison{}, err
	}
	var c Comparison
	groupsA, err := v.groups(ctx, a, o.MaxExamined, &c)
	if err != nil {
		return Comparison{}, err
	}
	groupsB, err := v.groups(ctx, b, o.MaxExamined, &c)
	if err != nil {
		return Comparison{}, err
	}
	position := 0
	partners := pairUp(groupsA, groupsB, func(g group) string { return g.same }, func(g group) string { return g.alike })
	for _, at := range merged(partners, len(groupsB)) {
		g, h := pick(groupsA, at[0]), pick(groupsB, at[1])
		inside := pairUp(g.events, h.events, func(e outline) string { return e.kind() + string(e.sum[:]) }, outline.kind)
		for _, at := range merged(inside, len(h.events)) {
			position++
			c.add(Pair{Position: position, Call: max(g.name, h.name)}, pick(g.events, at[0]), pick(h.events, at[1]), o)
		}
	}
	if err := v.load(ctx, a, c.Pairs, func(p *Pair) *event.Event { return &p.A }); err != nil {
		return Comparison{}, err
	}
	if err := v.load(ctx, b, c.Pairs, func(p *Pair) *event.Event { return &p.B }); err != nil {
		return Comparison{}, err
	}
	for i := range c.Pairs {
		if p := &c.Pairs[i]; p.Relation == Diff && p.A.Kind == p.B.Kind {
			p.Field, p.InA, p.InB, _ = event.Diff(lasting(p.A), lasting(p.B))
		}
	}
	return c, nil
}

// add counts a pair, and keeps it if it was asked for.
func (c *Comparison) add(p Pair, a, b outline, o DiffOptions) {
	p.A, p.B, p.Relation = a.Event, b.Event, Diff
	c.Examined++
	switch {
	case b.Seq == 0:
		p.Relation = OnlyA
		c.OnlyA++
	case a.Seq == 0:
		p.Relation = OnlyB
		c.OnlyB++
	case a.Kind == b.Kind && a.sum == b.sum:
		p.Relation = Match
		c.Match++
	default:
		c.Diff++
	}
	if p.Relation != Match && c.First.Position == 0 {
		c.First = p
	}
	size := max(a.size, b.size)
	switch {
	case p.Position < o.From, o.DifferentOnly && p.Relation == Match, c.Next > 0:
	case len(c.Pairs) == o.Limit, len(c.Pairs) > 0 && c.kept+size > share.Kept:
		c.Next = p.Position
	default:
		c.Pairs = append(c.Pairs, p)
		c.kept += size
	}
}

// outline is what is kept of an event while two runs are aligned.
type outline struct {
	event.Event            // without its payload
	size        int        // of its payload
	sum         canon.Hash // of what is the same in another run that does the same
}

// kind is the same for all terminal events.
func (e outline) kind() string {
	if e.Kind.Terminal() {
		return "end"
	}
	return e.Kind.String()
}

// group is the events of one call, or one event that belongs to none.
type group struct {
	name        string // of the call
	same, alike string // keys: of the same work, and of work that is compared if there is no other
	events      []outline
}

// groups reads the outline of a run.
func (v View) groups(ctx context.Context, id string, most int, c *Comparison) (all []group, err error) {
	var b span.Builder
	calls := map[int]int{} // the group of each call, by its number
	for ev, err := range v.Events(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		if ev.Seq > uint64(most) {
			c.Capped = true
			break
		}
		_ = b.Add(ev) // an unreadable event belongs to no call
		one := outline{ev, len(ev.Payload), canon.Sum(lasting(ev))}
		one.Payload, one.PrevHash = nil, nil
		in := b.Run().CallOf(b.At())
		if in == span.None {
			all = append(all, group{same: one.kind() + string(one.sum[:]), alike: one.kind(), events: []outline{one}})
			continue
		}
		call := &b.Run().Spans[in]
		at, known := calls[call.Number]
		if !known {
			at, calls[call.Number] = len(all), len(all)
			all = append(all, group{name: fmt.Sprintf("#%d %s", call.Number, call.Name), same: "call " + string(one.sum[:]), alike: "call " + call.Name})
		}
		all[at].events = append(all[at].events, one)
	}
	return all, nil
}

// load reads the events of some pairs again, with their payloads.
func (v View) load(ctx context.Context, id string, pairs []Pair, side func(*Pair) *event.Event) error {
	wanted := map[uint64]*event.Event{}
	for i := range pairs {
		if ev := side(&pairs[i]); ev.Seq > 0 {
			wanted[ev.Seq] = ev
		}
	}
	for ev, err := range v.Events(ctx, id, 0) {
		if err != nil || len(wanted) == 0 {
			return err
		}
		if to := wanted[ev.Seq]; to != nil {
			*to = ev
			delete(wanted, ev.Seq)
		}
	}
	return nil
}

// pairUp finds the partner in b of each of a, or -1. It takes the first that has the same first
// key, then those that have the same second one, and so on.
func pairUp[T any](a, b []T, keys ...func(T) string) []int {
	partners, taken := slices.Repeat([]int{-1}, len(a)), make([]bool, len(b))
	for _, key := range keys {
		free := map[string][]int{}
		for i, x := range b {
			if !taken[i] {
				free[key(x)] = append(free[key(x)], i)
			}
		}
		for i, x := range a {
			if next := free[key(x)]; partners[i] < 0 && len(next) > 0 {
				partners[i], taken[next[0]], free[key(x)] = next[0], true, next[1:]
			}
		}
	}
	return partners
}

// merged returns the pairs of indices in the order of a. What b has alone follows what it follows
// in b. An absent index is -1.
func merged(partners []int, lenB int) (pairs [][2]int) {
	alone := slices.Repeat([]bool{true}, lenB)
	for _, j := range partners {
		if j >= 0 {
			alone[j] = false
		}
	}
	rest := func(j int) {
		for ; j < lenB && alone[j]; j++ {
			pairs = append(pairs, [2]int{-1, j})
		}
	}
	rest(0)
	for i, j := range partners {
		pairs = append(pairs, [2]int{i, j})
		if j >= 0 {
			rest(j + 1)
		}
	}
	return pairs
}

// pick returns an element, or the zero value for -1.
func pick[T any](list []T, at int) (one T) {
	if at >= 0 {
		one = list[at]
	}
	return one
}

// passing are the fields of payloads that differ between any two runs.
var passing = []string{"duration_ms", "duration_us", "merkle_root", "turn_id", "call_id", "parent_id", "idemp_key", "wait_ms", "provider_request_id", "raw_response_hash"}

// lasting returns the payload of an event without the fields that differ in every execution. A
// payload that is not a map is returned unchanged.
func lasting(ev event.Event) canon.Raw {
	return without(ev.Payload, ev.Kind == event.KindAssistantMessageCompleted)
}

// without removes the passing fields of a map, and if there are calls in it, of those.
func without(payload canon.Raw, calls bool) canon.Raw {
	var fields map[string]canon.Raw
	if canon.Unmarshal(payload, &fields) != nil || fields == nil {
		return payload
	}
	for _, name := range passing {
		delete(fields, name)
	}
	var name string
	if canon.Unmarshal(fields["name"], &name) == nil && strings.HasPrefix(name, event.NestedCallPrefix) {
		delete(fields, "value") // the name of another call
	}
	var uses []canon.Raw
	if calls && canon.Unmarshal(fields["tool_uses"], &uses) == nil {
		for i := range uses {
			uses[i] = without(uses[i], false)
		}
		fields["tool_uses"], _ = canon.Marshal(uses)
	}
	rest, err := canon.Marshal(fields)
	if err != nil {
		return payload
	}
	return rest
}
