package source

// Bounds of the calls of a script that are read, and of the bytes of a function's table of lines.
const (
	maxCalls  = 512
	mostCalls = 1 << 17 // of calls that are only counted
	maxLines  = 1 << 18
)

// Call is a function of a script that an interpreter executes.
type Call struct {
	Place
	Variables []Variable
}

// Interpreted returns the calls of the script on the stack of a Python or JavaScript module, the
// innermost first, from its memory. The line of a call that has called another is exact. That of the
// innermost is the line of its last operation that could fail. If locals are the locals of the
// functions of WebAssembly on the stack, innermost first, it is exact in JavaScript, too.
func (t *Table) Interpreted(memory []byte, locals ...[]uint64) []Call {
	calls, _ := t.calls(memory, locals, false)
	return calls
}

// Innermost returns the place of the innermost call of [Table.Interpreted], and how many there are with
// those that it leaves out, in a small part of the time.
func (t *Table) Innermost(memory []byte, locals ...[]uint64) (Place, int) {
	calls, n := t.calls(memory, locals, true)
	if len(calls) == 0 {
		return Place{}, 0
	}
	return calls[0].Place, n
}

// calls returns the calls of the script, and their number; if brief, the innermost without variables.
func (t *Table) calls(memory []byte, locals [][]uint64, brief bool) ([]Call, int) {
	b := bytesOf(memory)
	switch t.format {
	case Python:
		if p, ok := t.openPython(b); ok {
			return p.calls(brief)
		}
	case JavaScript:
		if t.script.known {
			q := quickJS{bytesOf: b, place: t.script.place, left: maxParts}
			return q.calls(locals, brief)
		}
	}
	return nil, 0
}

// bytesOf is the memory of a module. Reading outside of it gives zeros.
type bytesOf []byte

func (b bytesOf) u32(at uint32) uint32 { return uint32(b.uint(at, 4)) }

func (b bytesOf) uint(at uint32, n int) uint64 {
	c := &cursor{b: b}
	if uint64(at) > uint64(len(b)) {
		return 0
	}
	c.pos = int(at)
	return c.uint(n)
}

// part returns up to n bytes at an address.
func (b bytesOf) part(at, n uint32) []byte {
	if uint64(at) >= uint64(len(b)) {
		return nil
	}
	return b[at:min(uint64(at)+uint64(n), uint64(len(b)))]
}
