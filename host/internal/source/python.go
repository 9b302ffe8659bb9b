package source

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// python reads the state of CPython 3.13, whose runtime begins with a description of itself for
// debuggers: _Py_DebugOffsets, a cookie and numbers of eight bytes.
type python struct {
	bytesOf
	o      [71]uint32 // the description, by the numbers below
	thread uint32
	left   int // objects that may still be read
}

// The numbers in the description.
const (
	runtimeInterpreters = 5
	interpreterThreads  = 9
	threadFrame         = 23

	framePrevious, frameExecutable, frameInstruction, frameLocals, frameOwner                               = 29, 30, 31, 32, 33
	codeFile, codeQualName, codeLines, codeFirstLine, codeArguments, codeLocalNames, codeLocalKinds, codeOf = 35, 37, 38, 39, 40, 41, 42, 43
	objectType, typeName, tupleItems, tupleSize, listItems, listSize, floatValue                            = 45, 47, 51, 52, 54, 55, 60
	longTag, longDigits, bytesSize, bytesText, textState, textLength, textASCII                             = 62, 63, 65, 66, 68, 69, 70
)

func (t *Table) openPython(b bytesOf) (*python, bool) {
	p := &python{bytesOf: b, left: maxParts}
	from := int(t.python.Load()) // where it was the last time
	if string(b.part(uint32(from), 8)) != "xdebugpy" {
		from = 0
	}
	for ; ; from++ {
		i := bytes.Index(b[from:], []byte("xdebugpy"))
		if i < 0 {
			return nil, false
		}
		if from += i; b.uint(uint32(from)+8, 8)>>16 == 0x030d {
			for n := range p.o {
				p.o[n] = uint32(b.uint(uint32(from+8*n), 8))
			}
			t.python.Store(uint32(from))
			interpreter := p.u32(uint32(from) + p.o[runtimeInterpreters])
			p.thread = p.u32(interpreter + p.o[interpreterThreads])
			return p, p.thread != 0
		}
	}
}

func (p *python) caller(frame uint32) uint32 { return p.u32(frame + p.o[framePrevious]) }

func (p *python) words(frame uint32) [3]uint32 {
	return [3]uint32{p.thread + p.o[threadFrame], frame + p.o[frameInstruction], frame + p.o[framePrevious]}
}

func (p *python) code(frame uint32) uint32 {
	if p.uint(frame+p.o[frameOwner], 1) > 2 { // of C
		return 0
	}
	return p.u32(frame + p.o[frameExecutable])
}

func (p *python) suspended(frame uint32) bool {
	code := p.code(frame)
	return code != 0 && p.u32(frame+p.o[frameInstruction]) > code+p.o[codeOf]
}

func (p *python) place(frame, code uint32) Place {
	c := Place{File: p.text(p.u32(code + p.o[codeFile])), Function: p.text(p.u32(code + p.o[codeQualName]))}
	if strings.HasPrefix(c.File, "<frozen _starling_") { // what executes the tool
		return Place{}
	}
	c.Line, c.Column = p.line(code, p.u32(frame+p.o[frameInstruction])-code-p.o[codeOf])
	return c
}

// line finds the line of an offset in the code of a function: see Objects/locations.md of CPython.
func (p *python) line(code, offset uint32) (line, column int) {
	table := p.u32(code + p.o[codeLines])
	c := &cursor{b: p.part(table+p.o[bytesText], min(p.u32(table+p.o[bytesSize]), maxLines))}
	number := func() (v int) { // six bits in a byte
		for shift := 0; !c.failed; shift += 6 {
			b := int(c.byte())
			if v |= b & 63 << min(shift, 32); b&64 == 0 {
				break
			}
		}
		return v
	}
	signed := func() int {
		if v := number(); v&1 == 0 {
			return v >> 1
		} else {
			return -(v >> 1)
		}
	}
	line = int(int32(p.u32(code + p.o[codeFirstLine])))
	for end := uint32(0); c.pos < len(c.b) && !c.failed; {
		first := c.byte()
		end += 2 * uint32(first&7+1)
		shown := line
		switch kind := int(first >> 3 & 15); {
		case kind <= 9:
			column = kind<<3 + int(c.byte()>>4)
		case kind <= 12:
			line += kind - 10
			column = int(c.byte())
			c.byte()
		case kind == 13:
			line += signed()
			column = -1
		case kind == 14:
			line += signed()
			number()
			column = number() - 1
			number()
		}
		if shown = line; first>>3&15 == 15 {
			shown, column = 0, -1
		}
		if offset < end {
			return shown, column + 1
		}
	}
	return 0, 0
}

func (p *python) variables(frame, code uint32) (all []Variable) {
	names, kinds := p.u32(code+p.o[codeLocalNames]), p.u32(code+p.o[codeLocalKinds])
	for i := range min(p.u32(names+p.o[tupleSize]), maxItems) {
		at := frame + p.o[frameLocals] + 4*i
		if kind := p.uint(kinds+p.o[bytesText]+i, 1); kind&0xc0 != 0 && p.typeOf(p.u32(at)) == "cell" {
			at = p.u32(at) + 8
		}
		if p.u32(at) == 0 {
			continue // not bound, or not any more
		}
		x := Variable{Name: p.text(p.u32(names + p.o[tupleItems] + 4*i))}
		p.read(&x, at, 0)
		all = append(all, x)
	}
	return all
}

func (p *python) typeOf(object uint32) string {
	name := p.u32(p.u32(object+p.o[objectType]) + p.o[typeName])
	text, _, _ := bytes.Cut(p.part(name, maxName), []byte{0})
	return cut(text)
}

// read sets the type and the value of a variable, whose object is at the address that is at an address.
func (p *python) read(x *Variable, at uint32, depth int) {
	object := p.u32(at)
	x.Type, x.Address, x.Size, x.Value = p.typeOf(object), at, 4, "…"
	if p.left--; p.left < 0 || depth > maxNesting {
		return
	}
	item := func(at uint32) func(*Variable, uint32) {
		return func(c *Variable, i uint32) { p.read(c, at+4*i, depth+1) }
	}
	switch x.Type {
	case "NoneType":
		x.Value = "None"
	case "bool":
		x.Value = "False"
		if p.u32(object+p.o[longTag])>>3 != 0 {
			x.Value = "True"
		}
	case "int":
		tag, n := p.u32(object+p.o[longTag]), int64(0)
		if tag>>3 > 2 {
			x.Value = fmt.Sprintf("an int of at most %d bits", 30*(tag>>3))
			return
		}
		for i := range tag >> 3 {
			n |= int64(p.uint(object+p.o[longDigits]+4*i, 4)) << (30 * i)
		}
		if tag&3 == 2 {
			n = -n
		}
		x.Value = strconv.FormatInt(n, 10)
	case "float":
		x.Value = strconv.FormatFloat(math.Float64frombits(p.uint(object+p.o[floatValue], 8)), 'g', -1, 64)
	case "str":
		x.Value = strconv.Quote(p.text(object))
	case "bytes":
		n := p.u32(object + p.o[bytesSize])
		x.Value = "b" + quoted(p.part(object+p.o[bytesText], n), int(n))
	case "tuple":
		items(x, p.u32(object+p.o[tupleSize]), "(", ")", item(object+p.o[tupleItems]))
	case "list":
		items(x, p.u32(object+p.o[listSize]), "[", "]", item(p.u32(object+p.o[listItems])))
	case "dict":
		x.Value = fmt.Sprintf("a dict of %d", p.u32(object+8))
	default:
		x.Value = fmt.Sprintf("<%s at %#x>", x.Type, object)
	}
}

// text returns the content of a str.
func (p *python) text(object uint32) string {
	state, n := p.u32(object+p.o[textState]), p.u32(object+p.o[textLength])
	kind, at := state>>2&7, object+p.o[textASCII]
	if state>>6&1 == 0 { // not ASCII
		at += 8
	}
	if kind == 0 || kind > 4 || state>>5&1 == 0 {
		return ""
	}
	return p.bytesOf.text(at, n, kind)
}
