package policy

import (
	"cmp"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// copies tells which recorded exchanges are copies. A call that is made in the
// place of one that a process left without an outcome begins with what was recorded
// of that: the exchanges stand in the log twice, and happened once.
type copies struct {
	key  map[string]string       // of each call: the id of the first in whose place it is made
	left map[string][]canon.Hash // what a call may still begin with
	done map[string][]canon.Hash // by key: the exchanges of the last call that has one
}

func newCopies() *copies {
	return &copies{key: map[string]string{}, left: map[string][]canon.Hash{}, done: map[string][]canon.Hash{}}
}

// scheduled takes note of an attempt at a call.
func (c *copies) scheduled(p event.ToolCallScheduled) {
	key := cmp.Or(p.IdempKey, p.CallID)
	c.key[p.CallID] = key
	if p.IdempKey != "" && p.Attempt <= 1 {
		c.left[p.CallID] = slices.Clone(c.done[key])
	} else {
		delete(c.left, p.CallID)
	}
	if p.Attempt > 1 {
		delete(c.done, key) // another attempt begins with nothing
	}
}

// copied reports whether an exchange is a copy, and takes note of it.
func (c *copies) copied(p event.SideEffectRecorded) bool {
	id := canon.Sum(p.Request, []byte{0}, p.Value)
	left := c.left[p.CallID]
	if len(left) > 0 && left[0] == id {
		c.left[p.CallID] = left[1:]
		return true
	}
	if len(left) > 0 { // it went another way, and is on its own
		c.done[c.key[p.CallID]] = nil
		delete(c.left, p.CallID)
	}
	c.done[c.key[p.CallID]] = append(c.done[c.key[p.CallID]], id)
	return false
}
