package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// immediates are the opcodes of WebAssembly 2.0 without vector instructions, and
// bytes that are valid immediates of each (core specification, section 5.4).
// Blocks bring their end.
func immediates() map[byte]string {
	table := map[byte]string{
		0x02: "\x40\x0b", 0x03: "\x40\x0b", 0x04: "\x40\x0b",
		0x0c: "\x00", 0x0d: "\x00", 0x0e: "\x01\x00\x00", 0x10: "\x00", 0x11: "\x00\x00",
		0x1c: "\x01\x7f", 0x3f: "\x00", 0x40: "\x00",
		0x41: "\x00", 0x42: "\x00", 0x43: "\x00\x00\x00\x00", 0x44: "\x00\x00\x00\x00\x00\x00\x00\x00",
		0xd0: "\x70", 0xd2: "\x00",
	}
	for _, op := range []byte{0x00, 0x01, 0x05, 0x0f, 0x1a, 0x1b, 0xd1} {
		table[op] = ""
	}
	for op := 0x20; op <= 0x26; op++ {
		table[byte(op)] = "\x00"
	}
	for op := 0x28; op <= 0x3e; op++ {
		table[byte(op)] = "\x00\x00"
	}
	for op := 0x45; op <= 0xc4; op++ {
		table[byte(op)] = ""
	}
	return table
}

// bulk are the numbers after the prefix 0xfc, in order from 0, with their
// immediates.
var bulk = []string{
	"", "", "", "", "", "", "", "",
	"\x00\x00", "\x00", "\x00\x00", "\x00", // memory.init, data.drop, memory.copy, memory.fill
	"\x00\x00", "\x00", "\x00\x00", "\x00", "\x00", "\x00", // table.init, elem.drop, table.copy, grow, size, fill
}

// step reads one function body of the given instruction, and returns where the
// iterator got to and its error.
func step(t *testing.T, instruction string) (read int, err error) {
	t.Helper()
	code := wasm.Asm(instruction)
	m, err := wasm.Decode(work.Trusted(context.Background()), (&wasmtest.Module{Funcs: []wasmtest.Func{{Code: &code}}}).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, it, err := m.Body(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := it.Pos()
	for it.Next() {
	}
	return it.Pos() - begin, it.Err()
}

// accepts checks that the reader takes exactly the bytes of an instruction.
func accepts(t *testing.T, instruction string) {
	t.Helper()
	if read, err := step(t, instruction); err != nil || read != len(instruction)+1 {
		t.Errorf("%x: %d bytes and the end were read, want %d: %v", instruction, read-1, len(instruction), err)
	}
}

// refuses checks that an opcode fails where it stands, whatever follows.
func refuses(t *testing.T, opcode string) {
	t.Helper()
	for _, rest := range []string{"", "\x00", "\x40\x0b", strings.Repeat("\x00", 20), strings.Repeat("\x0b", 20)} {
		_, err := step(t, opcode+rest)
		var f *wasm.FormatError
		if !errors.As(err, &f) || !strings.Contains(f.Msg, "opcode") {
			t.Errorf("%x and then %x: %v", opcode, rest, err)
		}
	}
}

// TestOpcodesAreClosed goes over all one-byte opcodes, and over all numbers
// after the prefix and some that would be valid if cut to a byte.
func TestOpcodesAreClosed(t *testing.T) {
	known := immediates()
	for op := range 256 {
		imm, ok := known[byte(op)]
		switch {
		case op == 0x0b, op == 0xfc: // the end, the prefix
		case ok:
			accepts(t, string([]byte{byte(op)})+imm)
		default:
			refuses(t, string([]byte{byte(op)}))
		}
	}
	for n, imm := range bulk {
		accepts(t, "\xfc"+string(wasm.AppendU32(nil, uint32(n)))+imm)
		for _, high := range []uint32{1 << 8, 1 << 16, 1 << 31} {
			refuses(t, "\xfc"+string(wasm.AppendU32(nil, high|uint32(n))))
		}
	}
	for n := len(bulk); n < 1024; n++ {
		refuses(t, "\xfc"+string(wasm.AppendU32(nil, uint32(n))))
	}
}

func TestSectionsAreClosed(t *testing.T) {
	for id := range 256 {
		module := append([]byte(wasmtest.Header), byte(id), 2, 0, 0)
		_, err := wasm.Decode(work.Trusted(context.Background()), module)
		var f *wasm.FormatError
		if id > int(wasm.SectionDataCount) && (!errors.As(err, &f) || f.Offset != 8) {
			t.Errorf("section %d: %v", id, err)
		}
	}
}

// TestAllocationIsProportional: what reading allocates is at most a multiple of
// the bytes read, in the shapes that make the most of theirs, and does not grow
// faster than they do.
func TestAllocationIsProportional(t *testing.T) {
	const most = 64 // times the size of the module
	section := func(id wasm.SectionID, item string, n int) []byte {
		body := append(wasm.AppendU32(nil, uint32(n)), bytes.Repeat([]byte(item), n)...)
		return append([]byte(wasmtest.Header), wasmtest.Section(id, body)...)
	}
	tests := []struct {
		name string
		id   wasm.SectionID
		item string
	}{
		{"types", wasm.SectionType, "\x60\x00\x00"},
		{"types with parameters", wasm.SectionType, "\x60\x01\x7f\x01\x7f"},
		{"imports", wasm.SectionImport, "\x00\x00\x00\x00"},
		{"imports with names", wasm.SectionImport, "\x01a\x01b\x00\x00"},
		{"functions", wasm.SectionFunction, "\x00"},
		{"tables", wasm.SectionTable, "\x70\x00\x00"},
		{"memories", wasm.SectionMemory, "\x00\x00"},
		{"globals", wasm.SectionGlobal, "\x7f\x00\x41\x00\x0b"},
		{"exports", wasm.SectionExport, "\x00\x00\x00"},
		{"element segments", wasm.SectionElement, "\x01\x00\x00"},
		{"items", wasm.SectionElement, "\x00\x41\x00\x0b\x04\x00\x00\x00\x00"},
		{"bodies", wasm.SectionCode, "\x02\x00\x0b"},
		{"data segments", wasm.SectionData, "\x01\x00"},
	}
	for _, tt := range tests {
		for _, n := range []int{1_000, 100_000} {
			module := section(tt.id, tt.item, n)
			if got := wasmtest.Allocated(func() { wasm.Decode(work.Trusted(context.Background()), module) }); got > most*uint64(len(module)) {
				t.Errorf("%d %s in %d bytes allocate %d, %d times as much", n, tt.name, len(module), got, got/uint64(len(module)))
			}
		}
		lie := append([]byte(wasmtest.Header), wasmtest.Section(tt.id, []byte("\xff\xff\xff\xff\x0f"+tt.item))...)
		if got := wasmtest.Allocated(func() { wasm.Decode(work.Trusted(context.Background()), lie) }); got > 4<<10 {
			t.Errorf("a count of 2^32-1 %s allocates %d bytes", tt.name, got)
		}
	}
}
