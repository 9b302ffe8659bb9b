package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// budget returns a budget for an input of n bytes.
func budget(n int) *work.Budget { return work.New(context.Background(), work.ForSize(n)) }

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

// TestDWARFOfAttackers reads information that makes readers without a budget exceed their memory, their
// stack or all time: see RATIONALE.md. What is allocated stays within what the size of the module allows.
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
	for i := range 1 << 14 {
		manyUnits = append(manyUnits, unit(5*i, "\x00")...)
	}
	var programs, nested []byte // each unit has the program that begins within the one before it
	for i := range 1 << 12 {
		programs = append(programs, unit(0, "\x01", 17*i, "\x00")...)
		nested = append(nested, bytesOfDWARF((1<<12-i)*17-4, "\x02\x00", 3, "\x01\x01\xfb\x0e\x01\x00\x00")...)
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
			"abbrev": bytesOfDWARF("\x01\x11\x01", bytes.Repeat([]byte{3, 0x19}, 1<<15), "\x00\x00\x00"),
			"info":   unit(0, bytes.Repeat([]byte{1}, 1<<17)),
		},
		"a table for each unit": {"abbrev": bytes.Repeat([]byte{1, 0x11, 1, 0, 0}, 1<<17), "info": manyUnits},
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
			"info":   unit(0, "\x01", bytes.Repeat([]byte{2, 0, 0, 0, 0}, 1<<15), "\x00"),
			"str":    bytes.Repeat([]byte{'a'}, 1<<20),
		},
		"a long folder of each folder": {
			"abbrev": []byte("\x01\x11\x01\x10\x17\x1b\x0e\x00\x00\x00"),
			"info":   unit(0, "\x01", 0, 0, "\x00"),
			"line":   lines("\x04\x00", bytesOfDWARF("\x01\x01\x01\xfb\x0e\x01", bytes.Repeat([]byte{'a', 0}, 1<<20), "\x00\x00"), nil),
			"str":    append(bytes.Repeat([]byte{'b'}, 4096), 0),
		},
		"one program of lines at each offset": {
			"abbrev": []byte(rows),
			"info":   programs,
			"line":   nested,
		},
		"arguments of all operations": {
			"abbrev": []byte(rows),
			"info":   unit(0, "\x01", 0, "\x00"),
			"line":   lines("\x04\x00", bytesOfDWARF(numbers, "\x00\x00"), bytes.Repeat([]byte{200}, 1<<18)),
		},
		"names within names": {
			"abbrev": []byte("\x01\x39\x01\x03\x08\x00\x00\x02\x11\x01\x00\x00\x00"),
			"info":   unit(0, "\x02", bytes.Repeat([]byte{1, 'n', 0}, 1<<18)),
		},
		"a location for each variable": {
			"abbrev":   []byte("\x01\x11\x01\x00\x00\x02\x2e\x01\x11\x01\x12\x06\x00\x00\x03\x34\x00\x03\x08\x02\x17\x00\x00\x00"),
			"info":     unit(0, "\x01\x02", 2, 60, bytes.Repeat([]byte{3, 'x', 0, 0, 0, 0, 0}, 1<<12), "\x00\x00"),
			"loc":      bytes.Repeat([]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0}, 1<<12),
			"loclists": nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			module := dwarfModule(sections)
			limits := work.ForSize(len(module))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			table, err := Open(budget(len(module)), module)
			if err == nil {
				table.Variables(budget(len(module)), uint32(table.module.Code[0].Pos+10), State{Memory: make([]byte, 100)})
			} else if !errors.Is(err, work.ErrExceeded) {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if used := int64(after.TotalAlloc - before.TotalAlloc); used > 2*limits.Bytes+64*limits.Steps/16 {
				t.Errorf("%d MiB were allocated for %d KiB: %v", used>>20, len(module)>>10, err)
			}
			if table != nil && table.dwarf == nil {
				t.Error("nothing was read")
			}
		})
	}
}
