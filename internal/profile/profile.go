package profile

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/google/pprof/profile"
)

// Beyond is the frame below which functions stand whose callers are not kept.
const Beyond = "[deeper or further stacks]"

// Bounds on what a call and a profile keep. A stack is written with all of its frames, so
// their product bounds the file: some 8 million frames of a call, at the very worst.
const (
	maxDepth  = 256
	maxStacks = 1 << 15
	maxAll    = 1 << 16 // stacks of all calls
	maxLines  = 1 << 14 // of the script of a call
)

// Profile collects calls. It is safe for concurrent use, but each call is for one goroutine.
type Profile struct {
	module string
	name   func(tool string, function uint32) string
	stacks atomic.Int64

	mu    sync.Mutex // guards calls
	calls []*Call
}

// New begins a profile of a module. Name returns the name of the function of an
// index in the module of a tool, or "" if it has none; it is asked once for each function that ran.
func New(module string, name func(tool string, function uint32) string) *Profile {
	return &Profile{module: module, name: name}
}

// Call adds a call of a tool.
func (p *Profile) Call(tool string) *Call {
	c := &Call{profile: p, Tool: tool, nodes: 1, stack: []*node{{}}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	return c
}

// Calls returns the calls in the order in which they began.
func (p *Profile) Calls() []*Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// frame names a function: one of the module's by its index, an import, or one in a file of a script.
type frame struct {
	index      uint32
	name, file string
}

// node is one call stack: the frame of the function that runs, below its caller.
type node struct {
	frame   frame
	caller  *node // nil for the root, which no function is
	callees map[frame]*node
	order   []*node // callees, as they came
	fuel    uint64  // spent by the function itself
	calls   uint64
	depth   int
}

// Call is one call of a guest.
type Call struct {
	Tool string

	profile *Profile
	stack   []*node // the root and a node for each function that has not returned
	beyond  *node   // nil until it is needed
	nodes   int
	last    uint64 // fuel at the last report

	depths []int // of the functions of a script on the stack
	lines  map[line]*spent
	line   *spent // the line that runs, or nil
}

type line struct {
	frame
	number int
}

type spent struct{ times, fuel uint64 }

// Enter reports that a function of the module is entered.
func (c *Call) Enter(function uint32, fuel uint64) { c.enter(frame{index: function}, fuel) }

// EnterImport reports that an imported function is called.
func (c *Call) EnterImport(name string, fuel uint64) { c.enter(frame{name: name}, fuel) }

// Line reports that from now on so many functions of a script run, and where the innermost of them is.
func (c *Call) Line(depth int, function, file string, number int, fuel uint64) {
	c.spend(fuel)
	at := line{frame{name: cmp.Or(function, "(anonymous)"), file: cmp.Or(file, "(script)")}, number}
	before := len(c.depths)
	for n := before; n > 0 && (c.depths[n-1] > depth || c.depths[n-1] == depth && c.top().frame != at.frame); n-- {
		c.depths, c.stack = c.depths[:n-1], c.stack[:n]
	}
	returned := len(c.depths) < before
	if n := len(c.depths); depth > 0 && (n == 0 || c.depths[n-1] < depth) {
		c.enter(at.frame, fuel)
		c.depths, returned = append(c.depths, depth), false
	}
	c.line = nil
	if depth == 0 {
		return
	}
	if c.line = c.lines[at]; c.line == nil && len(c.lines) < maxLines {
		if c.lines == nil {
			c.lines = map[line]*spent{}
		}
		c.line = &spent{}
		c.lines[at] = c.line
	}
	if c.line != nil && !returned {
		c.line.times++
	}
}

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
	c.stack, c.depths, c.line = c.stack[:1], nil, nil
}

func (c *Call) top() *node { return c.stack[len(c.stack)-1] }

func (c *Call) spend(fuel uint64) {
	c.top().fuel += fuel - c.last
	if c.line != nil {
		c.line.fuel += fuel - c.last
	}
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
	kept := c.beyond == nil || caller.caller != c.beyond
	if kept && caller.depth < maxDepth && c.nodes < maxStacks && c.profile.stacks.Load() < maxAll {
		return c.add(caller, f)
	}
	if c.beyond == nil {
		c.beyond = c.add(c.stack[0], frame{name: Beyond})
	}
	if n, ok := c.beyond.callees[f]; ok {
		return n
	}
	if c.profile.stacks.Load() >= 2*maxAll {
		return c.beyond
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
	c.profile.stacks.Add(1)
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
	b := builder{p: p, out: out, locations: map[location]*profile.Location{}}
	for _, c := range p.Calls() {
		b.tool = c.Tool
		b.samples(c.stack[0], nil)
	}
	return out.Write(w)
}

// builder writes samples.
type builder struct {
	p         *Profile
	out       *profile.Profile
	locations map[location]*profile.Location
	tool      string // whose calls are written
}

// location is a function of a tool's module, or an import, which has no tool.
type location struct {
	frame
	tool string
}

// samples adds a node and the functions that it called. stack has its callers, outermost first. It
// recurses as deep as a stored stack.
func (b *builder) samples(n *node, stack []*profile.Location) {
	if n.caller != nil {
		stack = append(stack, b.location(n.frame))
	}
	if n.fuel > 0 || n.calls > 0 {
		leafFirst := slices.Clone(stack)
		slices.Reverse(leafFirst)
		b.out.Sample = append(b.out.Sample, &profile.Sample{
			Location: leafFirst, Value: []int64{int64(n.calls), int64(n.fuel)}, Label: map[string][]string{"tool": {b.tool}},
		})
	}
	for _, callee := range n.order {
		b.samples(callee, stack)
	}
}

// location returns the place of a function, which has no lines.
func (b *builder) location(f frame) *profile.Location {
	at := location{frame: f}
	if f.name == "" {
		at.tool = b.tool
	}
	if l, ok := b.locations[at]; ok {
		return l
	}
	id := uint64(len(b.locations) + 1)
	name := b.p.nameOf(b.tool, f)
	function := &profile.Function{ID: id, Name: name, SystemName: name}
	l := &profile.Location{ID: id, Mapping: b.out.Mapping[0], Address: id, Line: []profile.Line{{Function: function}}}
	b.locations[at] = l
	b.out.Function = append(b.out.Function, function)
	b.out.Location = append(b.out.Location, l)
	return l
}

func (p *Profile) nameOf(tool string, f frame) string {
	if f.name != "" {
		return f.name
	}
	if name := p.name(tool, f.index); name != "" {
		return name
	}
	return "func[" + strconv.FormatUint(uint64(f.index), 10) + "]"
}
