package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/wasm"
)

// Breakpoint is a place, or a piece of memory, at which motions end.
type Breakpoint struct {
	ID            int
	What          string // as the user wrote it
	Address, Size uint32 // of a watchpoint; Size is zero for others
	Lines         []Place
	Unchecked     bool // it names a function or a line of a script, which may not have it, or never stop there

	rewritten []uint32 // offsets of operations in the rewritten module
	places    []uint64 // positions
	script    Place    // in a script: a line of a file, or a function
}

// maxBreaks bounds the breakpoints and watchpoints of a session. Each instruction is compared with
// all of them, and the place of one may take seconds to find.
const maxBreaks = 1000

var errTooMany = fmt.Errorf("the session has %d breakpoints already: delete some", maxBreaks)

// Break adds a breakpoint. The place is one of
//
//	tool.c:12    a line of a file, or the next one with code; 12 is one of the file of the present line
//	parse        a function
//	0x1a2b       an instruction, by its offset in the module
//	effect       each effect; "effect http" the requests, "effect GET" or "effect now" those of a name, "effect 3" the third
//	fuel 10M     where so much fuel is spent
func (s *Session) Break(what string) (*Breakpoint, error) {
	if len(s.breaks) >= maxBreaks {
		return nil, errTooMany
	}
	what = strings.TrimSpace(what)
	b := &Breakpoint{What: what}
	kind, rest, _ := strings.Cut(what, " ")
	rest = strings.TrimSpace(rest)
	if what == "" {
		return nil, errors.New("a breakpoint needs a place")
	}
	var offsets []uint32
	switch file, line, number := lineOf(what); {
	case kind == "fuel" && rest != "":
		fuel, err := display.ParseCount(rest, display.FuelUnits())
		if err != nil {
			return nil, fmt.Errorf("fuel %s: %w", rest, err)
		}
		began, ctx := s.rec.At(), context.Background()
		err = s.rec.SeekFuel(ctx, fuel)
		b.places = []uint64{s.rec.At()} // the first position before which that much is spent
		if err = errors.Join(err, s.rec.Seek(ctx, began)); err != nil {
			return nil, err
		}
	case kind == "effect" || kind == "effects":
		n, _ := strconv.Atoi(strings.TrimPrefix(rest, "#"))
		for i, e := range s.effects {
			if name, _, request := strings.Cut(e.Name, " "); rest == "" || n == i+1 || rest == name || rest == e.Name || request && rest == "http" {
				b.places = append(b.places, e.At)
			}
		}
		if len(b.places) == 0 {
			return nil, fmt.Errorf("the call has no such effect; it has: %s", s.effectNames())
		}
	case number:
		if file == "" {
			frames := s.Frames()
			i := slices.IndexFunc(frames, func(f Frame) bool { return f.File != "" })
			if i < 0 {
				return nil, fmt.Errorf("line %d of which file? The present instruction has no line", line)
			}
			file = frames[i].File
		}
		if s.interpreted() {
			b.script, b.Unchecked = Place{File: strings.TrimPrefix(file, "/"), Line: line}, true
		} else {
			var found int
			if offsets, found = s.table.Addresses(file, line); found == 0 {
				return nil, fmt.Errorf("no code of the module comes from %s:%d or a line below it", file, line)
			}
			line = found
		}
		b.Lines = []Place{{File: file, Line: line}}
	case strings.HasPrefix(what, "0x"):
		offset, err := strconv.ParseUint(what[2:], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("%s is not an offset in the module", what)
		}
		offsets = []uint32{uint32(offset)}
	default:
		if offsets = s.table.Entries(what); len(offsets) > 0 {
			b.Lines = s.table.Lines(offsets[0])
		} else if b.script = (Place{Function: what}); !s.interpreted() {
			err := fmt.Errorf("the module has no function %q", what)
			if near := display.Nearest(what, s.table.Functions()); near != "" {
				err = fmt.Errorf("%w; did you mean %s?", err, display.Printable(near))
			}
			return nil, err
		} else {
			b.Unchecked = true
		}
	}
	for _, offset := range offsets {
		at, ok := s.rewritten(offset)
		if operation, found := s.rec.Operation(at); ok && found {
			b.rewritten = append(b.rewritten, operation)
		}
	}
	if len(b.rewritten) == 0 && len(b.places) == 0 && b.script == (Place{}) {
		return nil, fmt.Errorf("%s is not the place of an instruction", what)
	}
	return s.add(b), nil
}

// Watch adds a watchpoint on n bytes at an address.
func (s *Session) Watch(address, n uint32) (*Breakpoint, error) {
	if len(s.breaks) >= maxBreaks {
		return nil, errTooMany
	}
	if n == 0 || uint64(address)+uint64(n) > uint64(s.rec.Size()) {
		return nil, fmt.Errorf("%d bytes at %#x are not in memory, which has %d", n, address, s.rec.Size())
	}
	return s.add(&Breakpoint{What: fmt.Sprintf("%d bytes at %#x", n, address), Address: address, Size: n}), nil
}

func (s *Session) add(b *Breakpoint) *Breakpoint {
	s.lastID++
	b.ID = s.lastID
	s.breaks = append(s.breaks, b)
	return b
}

// Breakpoints returns all breakpoints and watchpoints.
func (s *Session) Breakpoints() []*Breakpoint { return slices.Clone(s.breaks) }

// Delete removes a breakpoint, and reports whether there was one.
func (s *Session) Delete(id int) bool {
	before := len(s.breaks)
	s.breaks = slices.DeleteFunc(s.breaks, func(b *Breakpoint) bool { return b.ID == id })
	return len(s.breaks) < before
}

// lineOf parses FILE:LINE or LINE.
func lineOf(what string) (file string, line int, ok bool) {
	if cut := strings.LastIndexByte(what, ':'); cut >= 0 {
		file, what = what[:cut], what[cut+1:]
	}
	line, err := strconv.Atoi(what)
	return file, line, err == nil && line > 0
}

func (s *Session) effectNames() string {
	var names []string
	for _, e := range s.effects {
		if name, _, _ := strings.Cut(e.Name, " "); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// first returns the first breakpoint for which is returns true, or nil.
func (s *Session) first(is func(b *Breakpoint) bool) *Breakpoint {
	if i := slices.IndexFunc(s.breaks, is); i >= 0 {
		return s.breaks[i]
	}
	return nil
}

// here returns the breakpoint at the next instruction, or nil.
func (s *Session) here() *Breakpoint {
	offset, _ := s.rec.Where()
	at := s.rec.At()
	return s.first(func(b *Breakpoint) bool { return slices.Contains(b.rewritten, offset) || slices.Contains(b.places, at) })
}

// watched returns the watchpoint of the write at which the machine has stopped, or nil.
func (s *Session) watched() *Breakpoint {
	at := s.rec.Hit()
	return s.first(func(b *Breakpoint) bool { return b.Size == at.Len && b.Address == at.Addr })
}

// inScript returns the breakpoint at a place in the script, or nil. A line begins there, perhaps in a
// function that was called.
func (s *Session) inScript(here Place, called bool) *Breakpoint {
	return s.first(func(b *Breakpoint) bool {
		file := b.script.File // as much of its path as the user has given, or all of it
		same := strings.HasSuffix("/"+here.File, "/"+file) || strings.HasSuffix("/"+file, "/"+here.File)
		return b.script.Line > 0 && here.Line == b.script.Line && same || b.script.Function != "" && called && here.Function == b.script.Function
	})
}

// number formats a value of WebAssembly.
func number(t wasm.ValType, bits uint64) string {
	switch t {
	case wasm.I32:
		return fmt.Sprintf("%d (%#x)", int32(bits), uint32(bits))
	case wasm.I64:
		return fmt.Sprintf("%d (%#x)", int64(bits), bits)
	case wasm.F32:
		return fmt.Sprint(math.Float32frombits(uint32(bits)))
	case wasm.F64:
		return fmt.Sprint(math.Float64frombits(bits))
	}
	return fmt.Sprintf("%#x", bits)
}
