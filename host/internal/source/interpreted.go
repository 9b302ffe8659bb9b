package source

import (
	"fmt"
	"unicode/utf16"
)

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
	frame     uint32
}

// Interpreted returns the calls of the script on the stack of a Python or JavaScript module, the
// innermost first, from its memory. The line of a call that has called another is exact. That of the
// innermost is the line of its last operation that could fail. If locals are the locals of the
// functions of WebAssembly on the stack, innermost first, it is exact in JavaScript, too.
func (t *Table) Interpreted(memory []byte, locals ...[]uint64) []Call {
	calls, _ := t.calls(memory, locals, false, false)
	return calls
}

// Innermost returns the place of the innermost call of [Table.Interpreted], and how many there are with
// those that it leaves out, in a small part of the time.
func (t *Table) Innermost(memory []byte, locals ...[]uint64) (Place, int) {
	calls, n := t.calls(memory, locals, true, false)
	if len(calls) == 0 {
		return Place{}, 0
	}
	return calls[0].Place, n
}

// calls returns the calls of the script, and their number; if brief, the innermost without variables. If
// fresh, the innermost has just been called.
func (t *Table) calls(memory []byte, locals [][]uint64, brief, fresh bool) (all []Call, count int) {
	in, frame := t.interpreter(memory, locals)
	if q, ok := in.(*quickJS); ok {
		q.fresh = fresh
	}
	for n := 0; frame != 0 && (n < maxCalls || brief && n < mostCalls); n++ {
		if code := in.code(frame); brief && count > 0 && code != 0 {
			count++
		} else if code != 0 {
			c := Call{frame: frame}
			if c.Place = in.place(frame, code); c.File != "" {
				if !brief {
					c.Variables = in.variables(frame, code)
				}
				all, count = append(all, c), count+1
			}
		}
		frame = in.caller(frame)
	}
	return all, count
}

// interpreter reads the state of an interpreter. Frames and code are addresses.
type interpreter interface {
	caller(frame uint32) uint32              // or 0
	code(frame uint32) uint32                // or 0 for a function that is not of a script
	suspended(frame uint32) bool             // whether a new frame is one that has run before
	place(frame, code uint32) Place          // without a file for what is not the author's; called from the innermost
	variables(frame, code uint32) []Variable // of the function
	words(frame uint32) [3]uint32            // the addresses of words that change with calls and operations: see [Follower.Look]
}

// interpreter returns that of the module, and its innermost frame or 0.
func (t *Table) interpreter(memory []byte, locals [][]uint64) (interpreter, uint32) {
	switch {
	case t.format == Python:
		if p, ok := t.openPython(memory); ok {
			return p, p.u32(p.thread + p.o[threadFrame])
		}
	case t.format == JavaScript && t.script.known:
		q := &quickJS{bytesOf: memory, script: &t.script, locals: locals, left: maxParts}
		return q, q.u32(quickJSFrame)
	}
	return nil, 0
}

// bytesOf is the memory of a module. Reading outside of it gives zeros.
type bytesOf []byte

func (b bytesOf) u32(at uint32) uint32 { return uint32(b.uint(at, 4)) }

func (b bytesOf) uint(address uint32, n int) uint64 { return at(b, uint64(address)).uint(n) }

// text returns characters of 1, 2 or 4 bytes.
func (b bytesOf) text(at, n, size uint32) string {
	var text []rune
	for i := range min(n, maxName) {
		r, last := rune(b.uint(at+size*i, int(size))), len(text)-1
		if last >= 0 && utf16.IsSurrogate(text[last]) && utf16.IsSurrogate(r) {
			text[last] = utf16.DecodeRune(text[last], r)
		} else {
			text = append(text, r)
		}
	}
	return cut([]byte(string(text)))
}

// items sets the value of a variable that is a list of others.
func items(x *Variable, n uint32, begin, end string, read func(c *Variable, i uint32)) {
	for i := range min(n, maxItems) {
		c := Variable{Name: fmt.Sprintf("[%d]", i)}
		read(&c, i)
		x.Children = append(x.Children, c)
	}
	x.Value = together(x, begin, end, false)
}

// part returns up to n bytes at an address.
func (b bytesOf) part(at, n uint32) []byte {
	if uint64(at) >= uint64(len(b)) {
		return nil
	}
	return b[at:min(uint64(at)+uint64(n), uint64(len(b)))]
}
