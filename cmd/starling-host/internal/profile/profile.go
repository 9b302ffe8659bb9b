package profile

import (
	"io"
	"strconv"

	"github.com/google/pprof/profile"
)

// Beyond is the frame below which functions stand whose callers are not kept.
const Beyond = "[deeper or further stacks]"

// Bounds on what one call keeps. A stack is written with all of its frames, so
// their product bounds the file: some 8 million frames, at the very worst.
const (
	maxDepth  = 256
	maxStacks = 1 << 15
)

// Profile collects calls. It is not safe for concurrent use, and neither are
// the calls.
type Profile struct {
	module string
	name   func(function uint32) string
	calls  []*Call
}

// New begins a profile of a module. Name returns the name of the function of an
// index, or "" if it has none; it is asked once for each function that ran.
func New(module string, name func(function uint32) string) *Profile {
	return &Profile{module: module, name: name}
}

// Call adds a call, whose fuel carries the labels.
func (p *Profile) Call(labels map[string]string) *Call {
	c := &Call{labels: map[string][]string{}, nodes: 1}
	for key, value := range labels {
		c.labels[key] = []string{value}
	}
	c.stack = []*node{{}}
	p.calls = append(p.calls, c)
	return c
}

// frame names a function: one of the module's by its index, or an import.
type frame struct {
	index    uint32
	imported string
}

// node is one call stack: the frame of the function that runs, below its caller.
type node struct {
	frame    frame
	caller   *node // nil for the root, which no function is
	callees  map[frame]*node
	order    []*node // callees, as they came
	fuel     uint64  // spent by the function itself
	calls    uint64
	depth    int
	overflow bool // the frame [Beyond]
}

// Call is one call of a guest.
type Call struct {
	labels map[string][]string
	stack  []*node // the root and a node for each function that has not returned
	beyond *node   // nil until it is needed
	nodes  int
	last   uint64 // fuel at the last report
}

// Enter reports that a function of the module is entered.
func (c *Call) Enter(function uint32, fuel uint64) { c.enter(frame{index: function}, fuel) }

// EnterImport reports that an imported function is called.
func (c *Call) EnterImport(name string, fuel uint64) { c.enter(frame{imported: name}, fuel) }

// Leave reports that the function entered last returns.
func (c *Call) Leave(fuel uint64) {
	c.spend(fuel)
	if len(c.stack) > 1 {
		c.stack = c.stack[:len(c.stack)-1]
	}
}

// End reports the end of the call. Its functions need not have returned: a trap or a kill ends all
// of them.
func (c *Call) End(fuel uint64) {
	c.spend(fuel)
	c.stack = c.stack[:1]
}

func (c *Call) top() *node { return c.stack[len(c.stack)-1] }

func (c *Call) spend(fuel uint64) {
	c.top().fuel += fuel - c.last
	c.last = fuel
}

func (c *Call) enter(f frame, fuel uint64) {
	c.spend(fuel)
	callee := c.callee(c.top(), f)
	callee.calls++
	c.stack = append(c.stack, callee)
}

// callee returns the stack of f below a caller, or below the frame Beyond when
// there is no room for another one.
func (c *Call) callee(caller *node, f frame) *node {
	if n, ok := caller.callees[f]; ok {
		return n
	}
	if caller.caller != nil && caller.caller.overflow || caller.depth >= maxDepth || c.nodes >= maxStacks {
		return c.furtherCallee(f)
	}
	return c.add(caller, f)
}

func (c *Call) furtherCallee(f frame) *node {
	if c.beyond == nil {
		c.beyond = c.add(c.stack[0], frame{imported: Beyond})
		c.beyond.overflow = true
	}
	if n, ok := c.beyond.callees[f]; ok {
		return n
	}
	return c.add(c.beyond, f)
}

func (c *Call) add(caller *node, f frame) *node {
	n := &node{frame: f, caller: caller, depth: caller.depth + 1}
	if caller.callees == nil {
		caller.callees = map[frame]*node{}
	}
	caller.callees[f] = n
	caller.order = append(caller.order, n)
	c.nodes++
	return n
}

// Write writes the profile, in the gzipped protocol buffers of pprof. The same
// calls give the same bytes.
func (p *Profile) Write(w io.Writer) error {
	out := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "calls", Unit: "count"}, {Type: "fuel", Unit: "units"}},
		DefaultSampleType: "fuel",
		// With functions set, pprof does not look for a file with this name.
		Mapping: []*profile.Mapping{{ID: 1, File: p.module, HasFunctions: true}},
	}
	b := builder{p: p, out: out, locations: map[frame]*profile.Location{}}
	for _, c := range p.calls {
		b.labels = c.labels
		b.samples(c.stack[0], nil)
	}
	return out.Write(w)
}

// builder writes samples.
type builder struct {
	p         *Profile
	out       *profile.Profile
	locations map[frame]*profile.Location
	labels    map[string][]string
}

// samples adds a node and the functions that it called. stack has its callers, outermost first. It
// recurses as deep as a stored stack.
func (b *builder) samples(n *node, stack []*profile.Location) {
	if n.caller != nil {
		stack = append(stack, b.location(n.frame))
	}
	if n.fuel > 0 || n.calls > 0 {
		leafFirst := make([]*profile.Location, len(stack))
		for i, l := range stack {
			leafFirst[len(stack)-1-i] = l
		}
		b.out.Sample = append(b.out.Sample, &profile.Sample{
			Location: leafFirst, Value: []int64{int64(n.calls), int64(n.fuel)}, Label: b.labels,
		})
	}
	for _, callee := range n.order {
		b.samples(callee, stack)
	}
}

// location returns the place of a function, which has no lines.
func (b *builder) location(f frame) *profile.Location {
	if l, ok := b.locations[f]; ok {
		return l
	}
	id := uint64(len(b.locations) + 1)
	name := f.imported
	if name == "" {
		name = b.p.name(f.index)
	}
	if name == "" {
		name = "func[" + strconv.FormatUint(uint64(f.index), 10) + "]"
	}
	function := &profile.Function{ID: id, Name: name, SystemName: name}
	l := &profile.Location{ID: id, Mapping: b.out.Mapping[0], Address: id, Line: []profile.Line{{Function: function}}}
	b.locations[f] = l
	b.out.Function = append(b.out.Function, function)
	b.out.Location = append(b.out.Location, l)
	return l
}
