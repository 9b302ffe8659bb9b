package source

import (
	"bytes"
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/starling-host/starling/host/internal/wasm"
)

// dwarfModule returns a module with one function, of 64 bytes, and some sections of DWARF.
func dwarfModule(sections map[string][]byte) []byte {
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x42\x01\x40\x00")
	module = append(append(module, bytes.Repeat([]byte{1}, 62)...), 0x0b)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		body := append(wasm.AppendName(nil, ".debug_"+name), sections[name]...)
		module = append(wasm.AppendU32(append(module, 0), uint32(len(body))), body...)
	}
	return module
}

// bytesOfDWARF returns numbers of 4 bytes, and bytes and texts as they are.
func bytesOfDWARF(parts ...any) (b []byte) {
	for _, part := range parts {
		switch p := part.(type) {
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(p))
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// TestDWARFOfAttackers reads information that makes readers without bounds exceed their memory, their
// stack or all time: see RATIONALE.md.
func TestDWARFOfAttackers(t *testing.T) {
	unit := func(abbrev int, entries ...any) []byte { // of DWARF 4
		body := bytesOfDWARF(append([]any{"\x04\x00", abbrev, "\x04"}, entries...)...)
		return bytesOfDWARF(len(body), body)
	}
	unit5 := func(entries ...any) []byte {
		body := bytesOfDWARF(append([]any{"\x05\x00\x01\x04", 0}, entries...)...)
		return bytesOfDWARF(len(body), body)
	}
	lines := func(version string, header, program []byte) []byte {
		body := bytesOfDWARF(version, len(header), header, program)
		return bytesOfDWARF(len(body), body)
	}
	numbers := []byte("\x01\x01\x01\xfb\x0e\xff") // of a header, with 254 operations
	for i := 1; i < 255; i++ {
		numbers = append(numbers, 255) // arguments
	}
	manyUnits := []byte{}
	for i := range 1 << 16 {
		manyUnits = append(manyUnits, unit(5*i, "\x00")...)
	}
	rows := "\x01\x11\x01\x10\x17\x00\x00\x00" // of abbreviations: a unit with lines
	function := "\x01\x11\x01\x00\x00\x02\x2e\x01\x11\x01\x12\x06\x00\x00\x03\x34\x00\x03\x08\x49\x13\x02\x18\x00\x00"
	for name, sections := range map[string]map[string][]byte{
		"types that are each other": {
			"abbrev": []byte(function + "\x04\x16\x00\x49\x13\x00\x00\x00"),
			"info":   unit(0, "\x01\x02", 2, 60, "\x03x\x00", 32, "\x02\x30\x9f\x00\x04", 37, "\x04", 32, "\x00"),
		},
		"pointers without an end": {
			"abbrev": []byte(function + "\x04\x0f\x00\x49\x13\x00\x00\x00"),
			"info":   unit(0, "\x01\x02", 2, 60, "\x03x\x00", 32, "\x02\x30\x9f\x00\x04", 32, "\x00"),
		},
		"a folder table of 2^33": {
			"abbrev": []byte(rows),
			"info":   unit5("\x01", 0, "\x00"),
			"line":   lines("\x05\x00\x04\x00", []byte("\x01\x01\x01\xfb\x0e\x01\x00\x80\x80\x80\x80\x20\x00\x00"), nil),
		},
		"attributes without bytes": {
			"abbrev": bytesOfDWARF("\x01\x11\x01", bytes.Repeat([]byte{3, 0x19}, 1<<18), "\x00\x00\x00"),
			"info":   unit(0, bytes.Repeat([]byte{1}, 1<<20)),
		},
		"a table for each unit": {"abbrev": bytes.Repeat([]byte{1, 0x11, 1, 0, 0}, 1<<19), "info": manyUnits},
		"a number without an end": {
			"abbrev": []byte(rows),
			"info":   unit(0, "\x01", 0, "\x00"),
			"line":   lines("\x04\x00", bytesOfDWARF(numbers, "\x00\x00"), bytes.Repeat([]byte{0x80}, 1<<18)),
		},
		"a list for each entry": {
			"abbrev": []byte("\x01\x11\x01\x00\x00\x02\x2e\x00\x55\x17\x00\x00\x00"),
			"info":   unit(0, "\x01", bytes.Repeat([]byte{2, 0, 0, 0, 0}, 1<<16), "\x00"),
			"ranges": bytes.Repeat([]byte{1, 0, 0, 0, 2, 0, 0, 0}, 1<<18),
		},
		"a long name for each entry": {
			"abbrev": []byte("\x01\x11\x01\x00\x00\x02\x2e\x00\x03\x0e\x00\x00\x00"),
			"info":   unit(0, "\x01", bytes.Repeat([]byte{2, 0, 0, 0, 0}, 1<<18), "\x00"),
			"str":    bytes.Repeat([]byte{'a'}, 8<<20),
		},
		"a long folder of each folder": {
			"abbrev": []byte("\x01\x11\x01\x10\x17\x1b\x0e\x00\x00\x00"),
			"info":   unit(0, "\x01", 0, 0, "\x00"),
			"line":   lines("\x04\x00", bytesOfDWARF("\x01\x01\x01\xfb\x0e\x01", bytes.Repeat([]byte{'a', 0}, 1<<20), "\x00\x00"), nil),
			"str":    append(bytes.Repeat([]byte{'b'}, 4096), 0),
		},
	} {
		t.Run(name, func(t *testing.T) {
			module := dwarfModule(sections)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			table, err := Open(module)
			if err != nil {
				t.Fatal(err)
			}
			table.Variables(uint32(table.module.Code[0].Pos+10), State{Memory: make([]byte, 100)})
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
				t.Errorf("%d MiB were allocated", used>>20)
			}
			if table.dwarf == nil {
				t.Error("nothing was read")
			}
		})
	}
}
