package profile

import (
	"cmp"
	"slices"
)

// Frame is a function below its caller, with what it spent there.
type Frame struct {
	Name     string
	Function uint32
	Imported bool // of the host; Function means nothing

	Calls       uint64
	Self, Total uint64   // fuel of the function itself, and with its callees
	Callees     []*Frame // those that spent most first
}

// maxFrames bounds the frames of one tree.
const maxFrames = 1 << 15

// Tree returns the stacks of the call below a frame for the call itself. Functions that spent
// less than least there have no frame.
func (c *Call) Tree(least uint64) *Frame {
	room := maxFrames
	root := c.tree(c.stack[0], least, &room)
	root.Name, root.Imported, root.Calls = c.Tool, true, 1
	return root
}

func (c *Call) tree(n *node, least uint64, room *int) *Frame {
	*room--
	f := &Frame{Calls: n.calls, Self: n.fuel, Total: n.fuel}
	if n.caller != nil {
		f.Name, f.Function, f.Imported = c.profile.nameOf(c.Tool, n.frame), n.frame.index, n.frame.imported != ""
	}
	for _, callee := range n.order {
		total := callee.total()
		f.Total += total
		if total >= least && *room > 0 {
			f.Callees = append(f.Callees, c.tree(callee, least, room))
		}
	}
	slices.SortStableFunc(f.Callees, func(a, b *Frame) int { return cmp.Compare(b.Total, a.Total) })
	return f
}

// total returns the fuel of a function and its callees. It recurses as deep as a stored stack.
func (n *node) total() uint64 {
	sum := n.fuel
	for _, callee := range n.order {
		sum += callee.total()
	}
	return sum
}

// Fuel returns the fuel that the call has spent by its last report.
func (c *Call) Fuel() uint64 { return c.last }

// Functions calls found for each stack of a function of the module with its calls and the fuel that
// it spent itself there.
func (c *Call) Functions(found func(function uint32, calls, fuel uint64)) {
	next := slices.Clone(c.stack[0].order)
	for len(next) > 0 {
		n := next[len(next)-1]
		next = append(next[:len(next)-1], n.order...)
		if n.frame.imported == "" {
			found(n.frame.index, n.calls, n.fuel)
		}
	}
}
