package source

import (
	"bytes"
	"slices"

	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/wasm"
)

// Script returns a small module for [Open] that says of a script what the module of its interpreter
// says, or nil if the module is no interpreter.
func Script(module []byte) []byte {
	m, err := wasm.Decode(module)
	if err != nil || interp.Of(module) == nil {
		return nil
	}
	var lines []byte
	for _, d := range m.Data {
		if b := m.Bytes(d.Pos, d.End); bytes.Contains(b, []byte(placeTable)) {
			lines = b[bytes.LastIndex(b, []byte(placeTable)):]
		}
	}
	m.Sections = slices.DeleteFunc(m.Sections, func(s wasm.Section) bool { return s.Name != interp.Section })
	m.SetBody(wasm.SectionCode, []byte{0})
	m.SetBody(wasm.SectionData, append(wasm.AppendU32([]byte{1, 1}, uint32(len(lines))), lines...)) // one, passive
	return m.Encode()
}

// Follower follows the calls of a script while the interpreter executes it.
type Follower struct {
	Table  *Table
	Walked int // frames that all looks have read; a hostile module has 131,072 for each

	frame   uint32 // of the innermost call, at the last look
	between int    // looks since, in the middle of a call
}

// Look returns the place of the innermost call and how many there are, as [Table.Innermost], or false
// while the interpreter is about to call: it has replaced the innermost frame, and not yet linked it to its
// caller. Look again after a write to the words at the addresses: they change whenever the interpreter
// calls or returns, and with most operations that can fail.
func (f *Follower) Look(memory []byte) (at Place, depth int, addresses [3]uint32, ok bool) {
	in, frame := f.Table.interpreter(memory, nil)
	if in == nil {
		return at, 0, addresses, false
	}
	addresses = in.words(frame)
	for caller, n := frame, 0; caller != 0 && n < mostCalls; n++ {
		caller = in.caller(caller)
		f.Walked++
	}
	linked := f.frame == 0 || frame == f.frame || in.caller(frame) == f.frame
	for caller, n := f.frame, 0; !linked && caller != 0 && n < mostCalls; n++ { // it may have returned
		caller = in.caller(caller)
		linked = caller == frame
		f.Walked++
	}
	if f.between++; !linked && f.between <= len(addresses) {
		return at, 0, addresses, false
	}
	f.frame, f.between = frame, 0
	at, depth = f.Table.Innermost(memory)
	return at, depth, addresses, true
}
