package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/starling-host/starling/host/internal/interp"
)

// QuickJS describes itself to nobody. So this is the layout of one version, which a test compares
// with what that version says of its own stack.
const (
	quickJSVersion = "3.6.2"
	quickJSFrame   = 0x11d2e4 // JSRuntime.current_stack_frame
	quickJSAtoms   = 0x11d288 // JSRuntime.atom_array

	quickJSInstruction = 28 // JSStackFrame.cur_pc
)

// placeTable begins the table that the host adds to the script of a tool: see placeTable in registry.
const placeTable = ", lines: {"

// script is what a JavaScript module says of its source.
type script struct {
	known bool // whether the engine is the version above
	files []string
	runs  []run
}

// run is a part of the script whose lines and columns are as far from each other as in a file.
type run struct{ line, column, file, lines, columns int }

// readScript reads the table of places.
func (t *Table) readScript(about *interp.About) {
	t.script.known = about.Version == quickJSVersion
	for _, d := range t.module.Data {
		b := t.module.Bytes(d.Pos, d.End)
		i := bytes.LastIndex(b, []byte(placeTable))
		if i >= 0 && (t.work.Spend((len(b)-i)/8) != nil || t.work.Hold(2*(len(b)-i)) != nil) {
			return
		}
		var lines struct {
			Files []string `json:"files"`
			Runs  string   `json:"runs"`
		}
		if i < 0 || json.NewDecoder(bytes.NewReader(b[i+len(placeTable)-1:])).Decode(&lines) != nil || len(lines.Files) == 0 {
			continue
		}
		t.script.files = lines.Files
		for text := range strings.SplitSeq(lines.Runs, ",") {
			if t.work.Spend(1) != nil || t.work.Hold(sizeOfRow) != nil {
				return
			}
			var n [5]int
			for i, s := range strings.Fields(text) {
				if v, err := strconv.ParseInt(s, 36, 32); err == nil && i < len(n) {
					n[i] = int(v)
				}
			}
			t.script.runs = append(t.script.runs, run{n[0], n[1], n[2], n[3], n[4]})
		}
	}
}

// author turns a place in the script into one in the author's files. It has no file in the runtime,
// which is not the author's.
func (s *script) author(p Place) Place {
	if p.File == "runtime" {
		p.File = ""
	}
	if p.File != "tool" || len(s.runs) == 0 {
		return p
	}
	line, column := p.Line-1, p.Column-1
	i := sort.Search(len(s.runs), func(i int) bool {
		r := s.runs[i]
		return r.line > line || r.line == line && r.column > column
	}) - 1
	if i < 0 || s.runs[i].file < 0 || s.runs[i].file >= len(s.files) {
		return Place{}
	}
	r := s.runs[i]
	p.File, p.Line, p.Column = cut([]byte(s.files[r.file])), p.Line+r.lines, max(p.Column+r.columns, 0)
	if p.Column == 1 || strings.HasPrefix(p.File, "node_modules/") {
		p.Column = 0 // not exact
	}
	return p
}

// quickJS reads the state of QuickJS.
type quickJS struct {
	bytesOf
	script *script
	locals [][]uint64 // of WebAssembly, until the innermost function is read
	fresh  bool       // the innermost function has just been called
	left   int        // values that may still be read
}

// Tags of values, which are doubles unless they have one of these.
const (
	jsString, jsObject, jsInt, jsBool, jsNull, jsUndefined, jsUninitialized = -7, -1, 0, 1, 2, 3, 4

	jsFirstTag, jsLastTag = -9, 7
	jsDoubles             = 0x7ff8000a << 32
)

func (q *quickJS) caller(frame uint32) uint32 { return q.u32(frame) }

func (q *quickJS) words(frame uint32) [3]uint32 {
	return [3]uint32{quickJSFrame, frame + quickJSInstruction, frame}
}

func (q *quickJS) code(frame uint32) uint32 {
	function, tag := q.u32(frame+8), int32(q.u32(frame+12))
	if tag != jsObject || !q.isScript(q.uint(function+10, 2)) {
		return 0 // the code of a function of C would lie nowhere
	}
	return q.u32(function + 24)
}

func (q *quickJS) place(frame, code uint32) Place {
	buffer, size, pc := q.u32(code+12), q.u32(code+16), q.u32(frame+quickJSInstruction)
	for _, locals := range q.locals {
		if !slices.Contains(locals, uint64(frame)) {
			continue // of another function than the one that executes this frame
		}
		i := slices.IndexFunc(locals, func(v uint64) bool { return v > uint64(buffer) && v <= uint64(buffer)+uint64(size) && v>>32 == 0 })
		if i >= 0 {
			pc = uint32(locals[i]) // where the interpreter is
			break
		}
	}
	// The frame of an ordinary function has the place of an older one, until it says where it is.
	old := q.fresh && q.ordinary(frame)
	q.locals, q.fresh = nil, false
	if old || pc <= buffer || pc > buffer+size {
		pc = buffer + 1 // it has called nothing yet
	}
	p := Place{File: q.atom(q.u32(code + 56)), Function: cmp.Or(q.name(q.u32(frame+8), code), "(anonymous)")}
	p.Line, p.Column = q.line(code, pc-buffer-1)
	return q.script.author(p)
}

// ordinary reports whether a frame is of a function that cannot suspend itself.
func (q *quickJS) ordinary(frame uint32) bool { return q.uint(q.u32(frame+8)+10, 2) == 13 }

func (q *quickJS) suspended(frame uint32) bool {
	code := q.code(frame)
	return code != 0 && !q.ordinary(frame) && q.u32(frame+quickJSInstruction) > q.u32(code+12)
}

// isScript reports whether a class of objects is one of the functions in JavaScript.
func (q *quickJS) isScript(class uint64) bool {
	return class == 13 || class == 17 || class == 55 || class == 59 // functions, generators, async ones of both
}

// line finds the line of an offset in the code of a function.
func (q *quickJS) line(code, offset uint32) (line, column int) {
	line, column = int(int32(q.u32(code+60))), int(int32(q.u32(code+64)))
	c := &cursor{b: q.part(q.u32(code+76), min(q.u32(code+72), maxLines))}
	for pc, next := uint32(0), line; c.pos < len(c.b) && !c.failed; {
		if op := int(c.byte()); op == 0 {
			pc += uint32(c.uleb())
			next = line + int(c.zigzag())
		} else {
			pc += uint32(op-1) / 5
			next = line + (op-1)%5 - 1
		}
		to := column + int(c.zigzag())
		if offset < pc {
			break
		}
		line, column = next, to
	}
	return line, column
}

// name returns the name of a function: that of its code, or of its property.
func (q *quickJS) name(function, code uint32) string {
	if name := q.atom(q.u32(code + 20)); name != "" {
		return name
	}
	if property := q.u32(function+16) + 8; int32(q.u32(property+4)) == jsString {
		return q.text(q.u32(property))
	}
	return ""
}

func (q *quickJS) atom(n uint32) string {
	if n == 0 || n>>31 != 0 {
		return ""
	}
	return q.text(q.u32(q.u32(quickJSAtoms) + 4*n))
}

// text returns the content of a string.
func (q *quickJS) text(at uint32) string {
	head := q.u32(at)
	if q.u32(at+4)>>28&3 != 0 {
		return "" // a part of another string
	}
	return q.bytesOf.text(at+24, head&^(1<<31), 1+head>>31)
}

func (q *quickJS) variables(frame, code uint32) (all []Variable) {
	arguments, variables := uint32(q.uint(code+32, 2)), uint32(q.uint(code+34, 2))
	for i := range min(arguments+variables, maxItems) {
		x := Variable{Name: q.atom(q.u32(q.u32(code+24) + 20*i))}
		at := q.u32(frame+16) + 8*i
		if i >= arguments {
			at = q.u32(frame+20) + 8*(i-arguments)
		}
		if x.Name == "" {
			continue
		}
		if q.read(&x, at, 0); x.Value != "" {
			all = append(all, x)
		}
	}
	return all
}

// read sets the type and the value of a variable, from the value at an address.
func (q *quickJS) read(x *Variable, at uint32, depth int) {
	bits := q.uint(at, 8)
	pointer, tag := uint32(bits), int32(bits>>32)
	x.Address, x.Size = at, 8
	if q.left--; q.left < 0 || depth > maxNesting {
		x.Value = "…"
		return
	}
	switch {
	case tag < jsFirstTag || tag > jsLastTag:
		f, form := math.Float64frombits(bits+jsDoubles), byte('f')
		if a := math.Abs(f); a >= 1e21 || a < 1e-6 {
			form = 'g'
		}
		x.Type, x.Value = "number", strconv.FormatFloat(f, form, -1, 64)
	case tag == jsInt:
		x.Type, x.Value = "number", strconv.Itoa(int(int32(pointer)))
	case tag == jsBool:
		x.Type, x.Value = "boolean", strconv.FormatBool(pointer != 0)
	case tag == jsNull:
		x.Type, x.Value = "object", "null"
	case tag == jsUndefined:
		x.Type, x.Value = "undefined", "undefined"
	case tag == jsUninitialized: // not declared yet
	case tag == jsString:
		x.Type, x.Value = "string", strconv.Quote(q.text(pointer))
	case tag == jsObject:
		q.object(x, pointer, depth)
	default:
		x.Type, x.Value = "?", fmt.Sprintf("%#x", bits)
	}
}

// object sets the parts of a variable that is an array or another object.
func (q *quickJS) object(x *Variable, at uint32, depth int) {
	x.Type = "object"
	switch class := q.uint(at+10, 2); {
	case class == 2:
		x.Type = "array"
		items(x, q.u32(at+32), "[", "]", func(c *Variable, i uint32) { q.read(c, q.u32(at+28)+8*i, depth+1) })
	case q.isScript(class):
		x.Type, x.Value = "function", "function "+q.name(at, q.u32(at+24))
	default:
		shape := q.u32(at + 12)
		names := shape + 40 + 4*(q.u32(shape+16)+1)
		for i := range min(q.u32(shape+24), maxItems) {
			if c := (Variable{Name: q.atom(q.u32(names + 8*i + 4))}); c.Name != "" && q.u32(names+8*i)>>26&0x30 == 0 { // no accessor
				q.read(&c, q.u32(at+16)+8*i, depth+1)
				x.Children = append(x.Children, c)
			}
		}
		x.Value = together(x, "{", "}", true)
	}
}
