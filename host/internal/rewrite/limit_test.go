package rewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// section appends a section that is a list of n items.
func sectionOf(id wasm.SectionID, n int, items []byte) []byte {
	body := append(wasm.AppendU32(nil, uint32(n)), items...)
	return append(append([]byte{byte(id)}, wasm.AppendU32(nil, uint32(len(body)))...), body...)
}

// bodies is a module with a memory and n functions of type () -> () with this code.
func bodies(n int, code []byte) []byte {
	code = append(append([]byte{0}, code...), byte(wasm.OpEnd))
	one := append(wasm.AppendU32(nil, uint32(len(code))), code...)
	b := []byte("\x00asm\x01\x00\x00\x00")
	b = append(b, sectionOf(wasm.SectionType, 1, []byte{0x60, 0, 0})...)
	b = append(b, sectionOf(wasm.SectionFunction, n, make([]byte, n))...)
	b = append(b, sectionOf(wasm.SectionMemory, 1, []byte{0, 1})...)
	return append(b, sectionOf(wasm.SectionCode, n, bytes.Repeat(one, n))...)
}

// TestBlocksOfAFunction: the limit is exact, and each kind of instruction counts as it should.
func TestBlocksOfAFunction(t *testing.T) {
	l := DefaultLimits()
	l.Blocks = 40
	for what, c := range map[string]struct {
		code  []byte
		count int
	}{
		"block":       {[]byte{0x02, 0x40, 0x0b}, 1},
		"loop":        {[]byte{0x03, 0x40, 0x0b}, 1},
		"if":          {[]byte{0x41, 0, 0x04, 0x40, 0x0b}, 2},
		"br":          {[]byte{0x0c, 0}, 1},
		"br_if":       {[]byte{0x41, 0, 0x0d, 0}, 1},
		"memory.fill": {[]byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0b, 0}, 4},
		"memory.copy": {[]byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0a, 0, 0}, 4},
	} {
		n := l.Blocks / c.count
		if _, err := Check(work.Trusted(context.Background()), bodies(2, bytes.Repeat(c.code, n)), l); err != nil {
			t.Errorf("%d × %s: %v", n, what, err)
		}
		_, err := Check(work.Trusted(context.Background()), bodies(2, bytes.Repeat(c.code, n+1)), l)
		r, ok := errors.AsType[*Refusal](err)
		if !ok || r.Limit != uint64(l.Blocks) || r.Value != uint64((n+1)*c.count) || r.Func != 0 {
			t.Errorf("%d × %s: %v", n+1, what, err)
		}
	}
}

// TestWhatTheGateAllocatesGrowsAsTheBytesDo reads modules of many things of one kind. Whether they are
// accepted or refused, what is allocated is bounded by a multiple of their size.
func TestWhatTheGateAllocatesGrowsAsTheBytesDo(t *testing.T) {
	many := func(id wasm.SectionID, n int, item func(i int) []byte) []byte {
		var items []byte
		for i := range n {
			items = append(items, item(i)...)
		}
		return append([]byte("\x00asm\x01\x00\x00\x00"), sectionOf(id, n, items)...)
	}
	same := func(item ...byte) func(int) []byte { return func(int) []byte { return item } }
	named := func(rest ...byte) func(int) []byte {
		return func(i int) []byte { return append(wasm.AppendName(nil, fmt.Sprint(i)), rest...) }
	}
	for kind, module := range map[string]func(n int) []byte{
		"types": func(n int) []byte { return many(wasm.SectionType, n, same(0x60, 0, 0)) },
		"parameters": func(n int) []byte {
			return many(wasm.SectionType, n/100, same(append([]byte{0x60, 100}, append(bytes.Repeat([]byte{0x7f}, 100), 0)...)...))
		},
		"imports": func(n int) []byte {
			return many(wasm.SectionImport, n, func(i int) []byte { return append(wasm.AppendName(nil, "m"), named(3, 0x7f, 0)(i)...) })
		},
		"globals":          func(n int) []byte { return many(wasm.SectionGlobal, n, same(0x7f, 0, 0x41, 0, 0x0b)) },
		"exports":          func(n int) []byte { return many(wasm.SectionExport, n, named(0, 0)) },
		"element segments": func(n int) []byte { return many(wasm.SectionElement, n, same(1, 0, 0)) },
		"elements": func(n int) []byte {
			return many(wasm.SectionElement, 1, same(append([]byte{0, 0x41, 0, 0x0b}, append(wasm.AppendU32(nil, uint32(n)), make([]byte, n)...)...)...))
		},
		"data segments": func(n int) []byte { return many(wasm.SectionData, n, same(1, 0)) },
		"functions":     func(n int) []byte { return bodies(n, nil) },
		"nops":          func(n int) []byte { return bodies(1+n/1000, bytes.Repeat([]byte{1}, 1000)) },
		"blocks":        func(n int) []byte { return bodies(1+n/1000, bytes.Repeat([]byte{0x02, 0x40, 0x0b}, 1000)) },
		"nested blocks": func(n int) []byte {
			return bodies(1+n/1000, append(bytes.Repeat([]byte{0x02, 0x40}, 1000), bytes.Repeat([]byte{0x0b}, 1000)...))
		},
		"labels": func(n int) []byte {
			return bodies(1+n/1000, append([]byte{0x41, 0, 0x0e, 0xe8, 0x07}, make([]byte, 1001)...))
		},
		"calls": func(n int) []byte { return bodies(1+n/1000, bytes.Repeat([]byte{0x10, 0}, 1000)) },
		"custom sections": func(n int) []byte {
			return append([]byte("\x00asm\x01\x00\x00\x00"), bytes.Repeat([]byte{0, 2, 1, 'a'}, n)...)
		},
		"names":             func(n int) []byte { return append(bodies(1, []byte{0xfe}), sectionName(n)...) },
		"names of bad code": func(n int) []byte { return append(bodies(n, []byte{0xfe}), sectionName(n)...) },
	} {
		for _, n := range []int{1_000, 100_000} {
			b := module(n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Rewrite(work.Trusted(context.Background()), b, DefaultLimits(), Options{})
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d %s: %d bytes, %d allocated, %v", n, kind, len(b), allocated, err)
			if most := uint64(1<<20 + 64*len(b)); allocated > most {
				t.Errorf("%d %s: %d bytes are allocated for %d, more than %d", n, kind, allocated, len(b), most)
			}
		}
	}
}

// sectionName is a name section with n names of function 0.
func sectionName(n int) []byte {
	names := append(wasm.AppendU32(nil, uint32(n)), bytes.Repeat([]byte{0, 1, 'a'}, n)...)
	body := append(wasm.AppendName(nil, "name"), append(append([]byte{1}, wasm.AppendU32(nil, uint32(len(names)))...), names...)...)
	return append(append([]byte{0}, wasm.AppendU32(nil, uint32(len(body)))...), body...)
}
