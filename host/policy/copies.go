package policy

import (
	"cmp"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// copies finds recorded exchanges that are copies. When a process dies during a call, the call that replaces it
// begins with the exchanges recorded so far. The log then has them twice, although they happened once.
type copies struct {
	key  map[string]string       // by call: the id of the first call that it replaces
	left map[string][]canon.Hash // by call: the exchanges that it may still repeat
	done map[string][]canon.Hash // by key: the exchanges of the last call that had any
}

func newCopies() *copies {
	return &copies{key: map[string]string{}, left: map[string][]canon.Hash{}, done: map[string][]canon.Hash{}}
}

// scheduled records an attempt at a call.
func (c *copies) scheduled(p event.ToolCallScheduled) {
	key := cmp.Or(p.IdempKey, p.CallID)
	c.key[p.CallID] = key
	if p.IdempKey != "" && p.Attempt <= 1 {
		c.left[p.CallID] = slices.Clone(c.done[key])
	} else {
		delete(c.left, p.CallID)
	}
	if p.Attempt > 1 {
		delete(c.done, key) // another attempt repeats nothing
	}
}

// copied records an exchange and reports whether it is a copy.
func (c *copies) copied(p event.SideEffectRecorded) bool {
	id := canon.Sum(p.Request, []byte{0}, p.Value)
	left := c.left[p.CallID]
	if len(left) > 0 && left[0] == id {
		c.left[p.CallID] = left[1:]
		return true
	}
	if len(left) > 0 { // the call took another path, so the rest are its own
		c.done[c.key[p.CallID]] = nil
		delete(c.left, p.CallID)
	}
	c.done[c.key[p.CallID]] = append(c.done[c.key[p.CallID]], id)
	return false
}
