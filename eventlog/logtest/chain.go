package logtest

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Chain makes the events of one run, each linked to the one before.
type Chain struct {
	RunID string
	Clock int64 // timestamp of the next event, advanced by a millisecond each

	seq  uint64
	head canon.Hash
	tree canon.Tree
}

// Next returns the next event of the run, with payload p. It panics when p
// cannot be encoded, which is a mistake in a test.
func (c *Chain) Next(p event.Payload) event.Event {
	raw, err := event.EncodePayload(p)
	if err != nil {
		panic(fmt.Sprintf("logtest: %v", err))
	}
	return c.link(event.Event{Kind: p.EventKind(), Payload: raw})
}

func (c *Chain) link(e event.Event) event.Event {
	c.seq++
	e.RunID, e.Seq, e.Timestamp = c.RunID, c.seq, c.Clock
	c.Clock += 1e6
	if c.seq > 1 {
		head := c.head
		e.PrevHash = head[:]
	}
	c.head = e.Hash()
	c.tree.Add(c.head)
	return e
}

// Start returns the first event of a run.
func (c *Chain) Start(goal string) event.Event {
	return c.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: goal, ToolSchemas: []event.ToolSchemaRef{}})
}

// Effect returns an effect whose value is a byte string of the given size.
func (c *Chain) Effect(size int) event.Event {
	value, err := event.EncodePayload(make([]byte, size))
	if err != nil {
		panic(fmt.Sprintf("logtest: %v", err))
	}
	return c.Next(event.SideEffectRecorded{Name: "test", Value: value})
}

// Complete returns the terminal event of a run that succeeded.
func (c *Chain) Complete() event.Event {
	root := c.tree.Root()
	return c.Next(event.RunCompleted{FinalText: "null", MerkleRoot: root[:]})
}

// Finished returns a whole run with one tool call that has n effects.
func Finished(runID string, n int) []event.Event {
	c := Chain{RunID: runID, Clock: 1_700_000_000_000_000_000}
	args, _ := event.EncodePayload(map[string]int{"n": n})
	evs := []event.Event{
		c.Start("call"),
		c.Next(event.ToolCallScheduled{CallID: "c1", TurnID: "direct", ToolName: "t", Args: args, Attempt: 1}),
	}
	for i := range n {
		value, _ := event.EncodePayload(i)
		evs = append(evs, c.Next(event.SideEffectRecorded{Name: event.EffectNow, Value: value, CallID: "c1"}))
	}
	return append(evs,
		c.Next(event.ToolCallCompleted{CallID: "c1", Result: args, Attempt: 1, DurationMs: 1}),
		c.Complete())
}

// Resume returns the chain that continues after the events of a run.
func Resume(evs []event.Event) Chain {
	c := Chain{RunID: evs[0].RunID, seq: uint64(len(evs))}
	for _, e := range evs {
		c.Clock, c.head = e.Timestamp+1e6, e.Hash()
		c.tree.Add(c.head)
	}
	return c
}

// Relink links the events of a run anew, with the Merkle root of its end, like an attacker
// who knows the format. It panics if the end cannot be read.
func Relink(evs []event.Event) []event.Event {
	c, linked := Chain{RunID: evs[0].RunID}, make([]event.Event, len(evs))
	for i, e := range evs {
		root := c.tree.Root()
		switch e.Kind {
		case event.KindRunCompleted:
			e.Payload = changed(e, func(p *event.RunCompleted) { p.MerkleRoot = root[:] })
		case event.KindRunFailed:
			e.Payload = changed(e, func(p *event.RunFailed) { p.MerkleRoot = root[:] })
		case event.KindRunCancelled:
			e.Payload = changed(e, func(p *event.RunCancelled) { p.MerkleRoot = root[:] })
		}
		c.Clock, e.PrevHash = e.Timestamp, nil
		linked[i] = c.link(e)
	}
	return linked
}

func changed[P event.Payload](e event.Event, change func(*P)) canon.Raw {
	p, err := event.Decode[P](e)
	if err == nil {
		change(&p)
		e.Payload, err = event.EncodePayload(p)
	}
	if err != nil {
		panic(fmt.Sprintf("logtest: %v", err))
	}
	return e.Payload
}

// Lenient returns runs that [eventlog.Check] accepts and refuses in strict mode, by what is wrong.
func Lenient(runID string) map[string][]event.Event {
	runs := map[string][]event.Event{}
	for name, change := range map[string]func(e *event.Event){
		"an unknown kind (S1)": func(e *event.Event) { e.Kind = 77 },
		"a foreign shape (S2)": func(e *event.Event) { e.Kind, e.Payload = event.KindSideEffectRecorded, []byte{0xa1, 0x61, 'x', 1} },
		"an effect of no call (S5)": func(e *event.Event) {
			*e = (&Chain{}).Next(event.SideEffectRecorded{Name: "now", CallID: "none", Value: []byte{1}})
		},
	} {
		c := Chain{RunID: runID, Clock: 1_700_000_000_000_000_000}
		events := []event.Event{c.Start("call"), c.Effect(1), c.Complete()}
		change(&events[1])
		runs[name] = Relink(events)
	}
	return runs
}
