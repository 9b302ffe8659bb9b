package profile

import (
	"cmp"
	"slices"
)

// Frame is a function below its caller, with what it spent there.
type Frame struct {
	Name     string
	Function uint32
	File     string // of a script; Function means nothing
	Imported bool   // of the host; Function means nothing

	Calls       uint64
	Self, Total uint64   // fuel of the function itself, and with its callees
	Callees     []*Frame // those that spent most first

	Smaller     int    // functions below that have no frame, counted wherever they were called
	SmallerFuel uint64 // that these spent
}

// Interpreter is the frame of what a call spent outside the functions of its script.
const Interpreter = "(interpreter: start and library)"

// maxFrames bounds the frames of all trees of a profile.
const maxFrames = 1 << 15

// Trees returns a frame for each call, with its stacks below. Functions that spent less than a share
// of the whole profile where they stand have no frame.
func (p *Profile) Trees(share uint64) []*Frame {
	calls, all, room := p.Calls(), uint64(0), maxFrames
	for _, c := range calls {
		all += c.last
	}
	trees := make([]*Frame, len(calls))
	for i, c := range calls {
		trees[i] = c.tree(c.stack[0], max(all/share, 1), &room)
		if t := trees[i]; len(c.lines) > 0 && t.Self > 0 {
			t.Callees = append(t.Callees, &Frame{Name: Interpreter, Imported: true, Self: t.Self, Total: t.Self})
			t.Self = 0
			slices.SortStableFunc(t.Callees, byTotal)
		}
		trees[i].Name, trees[i].Imported, trees[i].Calls = c.Tool, true, 1
	}
	return trees
}

func (c *Call) tree(n *node, least uint64, room *int) *Frame {
	*room--
	f := &Frame{Calls: n.calls, Self: n.fuel, Total: n.fuel}
	if n.caller != nil {
		f.Name, f.Function, f.File = c.profile.nameOf(c.Tool, n.frame), n.frame.index, n.frame.file
		f.Imported = n.frame.name != "" && f.File == ""
	}
	for _, callee := range n.order {
		total, functions := callee.total()
		f.Total += total
		if total >= least && *room > 0 {
			f.Callees = append(f.Callees, c.tree(callee, least, room))
		} else {
			f.Smaller, f.SmallerFuel = f.Smaller+functions, f.SmallerFuel+total
		}
	}
	slices.SortStableFunc(f.Callees, byTotal)
	return f
}

func byTotal(a, b *Frame) int { return cmp.Compare(b.Total, a.Total) }

// total returns the fuel of a function and its callees, and how many these are. It recurses as deep as a
// stored stack.
func (n *node) total() (fuel uint64, functions int) {
	fuel, functions = n.fuel, 1
	for _, callee := range n.order {
		more, below := callee.total()
		fuel, functions = fuel+more, functions+below
	}
	return fuel, functions
}

// Lines calls found for each line of the script that was reported, with how often and the fuel spent
// from there to the next report.
func (c *Call) Lines(found func(name, file string, line int, times, fuel uint64)) {
	for l, s := range c.lines {
		found(l.name, l.file, l.number, s.times, s.fuel)
	}
}
