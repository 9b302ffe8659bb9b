package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"pgregory.net/rapid"
)

// addOne is the module that the package comment shows.
var addOne = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x06\x01\x60\x01\x7f\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x07\x05\x01\x01f\x00\x00" +
	"\x0a\x09\x01\x07\x00\x20\x00\x41\x01\x6a\x0b")

// Example reads a module and lists the instructions of its function.
func Example() {
	m, err := wasm.Decode(work.Trusted(context.Background()), addOne)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Exports[0].Name, m.Types[m.Funcs[0]])
	_, it, err := m.Body(0, nil)
	for it.Next() {
		fmt.Printf("%#x at %d\n", uint16(it.Op), it.Instr.Pos)
	}
	fmt.Println(err, it.Err())
	// Output:
	// f (i32) -> i32
	// 0x20 at 32
	// 0x41 at 34
	// 0x6a at 36
	// 0xb at 37
	// <nil> <nil>
}

func TestNumbers(t *testing.T) {
	s32 := func(r *wasm.Reader) int64 { return int64(r.S32()) }
	u32 := func(r *wasm.Reader) int64 { return int64(r.U32()) }
	s33 := (*wasm.Reader).S33
	s64 := (*wasm.Reader).S64
	tests := []struct {
		name  string
		bytes string
		read  func(*wasm.Reader) int64
		want  int64
		ok    bool
	}{
		{"zero", "\x00", u32, 0, true},
		{"the largest u32", "\xff\xff\xff\xff\x0f", u32, math.MaxUint32, true},
		{"a padded u32", "\x81\x80\x80\x80\x00", u32, 1, true},
		{"a u32 with a bit too many", "\xff\xff\xff\xff\x1f", u32, 0, false},
		{"a u32 of six bytes", "\x80\x80\x80\x80\x80\x00", u32, 0, false},
		{"a u32 that is cut", "\x80\x80", u32, 0, false},
		{"minus one", "\x7f", s32, -1, true},
		{"a padded minus one", "\xff\xff\xff\xff\x7f", s32, -1, true},
		{"the smallest s32", "\x80\x80\x80\x80\x78", s32, math.MinInt32, true},
		{"the largest s32", "\xff\xff\xff\xff\x07", s32, math.MaxInt32, true},
		{"an s32 whose sign does not go on", "\xff\xff\xff\xff\x0f", s32, 0, false},
		{"an s32 whose sign goes on in part", "\xff\xff\xff\xff\x4f", s32, 0, false},
		{"the largest s33", "\xff\xff\xff\xff\x0f", s33, math.MaxUint32, true},
		{"the smallest s33", "\x80\x80\x80\x80\x70", s33, math.MinInt32 * 2, true},
		{"an s33 with a bit too many", "\xff\xff\xff\xff\x1f", s33, 0, false},
		{"the smallest s64", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f", s64, math.MinInt64, true},
		{"the largest s64", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", s64, math.MaxInt64, true},
		{"an s64 with a bit too many", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", s64, 0, false},
		{"an s64 of eleven bytes", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", s64, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := wasm.NewReader([]byte(tt.bytes), 0, len(tt.bytes))
			got := tt.read(&r)
			if (r.Err() == nil) != tt.ok || got != tt.want && tt.ok {
				t.Errorf("got %d, %v", got, r.Err())
			}
		})
	}
}

func TestNumbersRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, s, l := rapid.Uint32().Draw(t, "u32"), rapid.Int32().Draw(t, "s32"), rapid.Int64().Draw(t, "s64")
		b := wasm.AppendS64(wasm.AppendS32(wasm.AppendU32(nil, u), s), l)
		r := wasm.NewReader(b, 0, len(b))
		if r.U32() != u || r.S32() != s || r.S64() != l || r.Err() != nil || r.Len() != 0 {
			t.Fatalf("%d %d %d became %x", u, s, l, b)
		}
	})
}

// sample is a module with one of everything.
func sample() []byte {
	m := wasmtest.Module{
		Imports:  []wasmtest.Import{{Module: "env", Name: "f", Type: wasmtest.Type("i:")}},
		Table:    wasmtest.Pages(2),
		Memory:   &wasm.Limits{Min: 1, Max: 3, HasMax: true},
		Globals:  []wasmtest.Global{{Type: wasm.I64, Mutable: true, Value: -5}},
		Start:    new(uint32(1)),
		Funcs:    []wasmtest.Func{{}, {Export: "run", Type: wasmtest.Type("iF:if"), Code: new(wasm.Asm).Op(wasm.OpUnreachable)}},
		Exports:  []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Elements: []wasmtest.Element{{Offset: 1, Funcs: []uint32{2}}},
		Data:     []wasmtest.Data{{Offset: 7, Bytes: "hello"}},
		Customs:  []wasmtest.Custom{{Name: "name", Body: "\x01\x06\x01\x02\x03run"}},
	}
	return m.Bytes()
}

func TestDecode(t *testing.T) {
	b := sample()
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		t.Fatal(err)
	}
	if m.NumFuncs() != 3 || m.NumImportedFuncs() != 1 || len(m.Globals) != 1 || len(m.Tables) != 1 || len(m.Memories) != 1 {
		t.Errorf("index spaces: %d %d %d %d %d", m.NumFuncs(), m.NumImportedFuncs(), len(m.Globals), len(m.Tables), len(m.Memories))
	}
	if got := m.Types[m.FuncTypeIndex(2)].String(); got != "(i32, f64) -> (i32, f32)" {
		t.Errorf("type of run: %s", got)
	}
	if d := m.Data[0]; string(m.Bytes(d.Pos, d.End)) != "hello" || d.Start.Value != 7 {
		t.Errorf("data: %+v", d)
	}
	var items []uint64
	for c := range m.Items(&m.Elements[0]) {
		items = append(items, c.Value)
	}
	if !slices.Equal(items, []uint64{2}) || m.Elements[0].Start.Value != 1 {
		t.Errorf("elements: %v, %+v", items, m.Elements[0])
	}
	if g := m.Globals[0]; int64(g.Init.Value) != -5 || !g.Mutable || *m.Start != 1 {
		t.Errorf("global %+v, start %d", g, *m.Start)
	}
	if m.FuncName(2) != "run" || m.FuncName(1) != "" {
		t.Errorf("names %q, %q", m.FuncName(2), m.FuncName(1))
	}
	if !bytes.Equal(m.Encode(), b) {
		t.Error("encoding changed a module that nobody touched")
	}
}

func TestPages(t *testing.T) {
	for bytes, want := range map[uint64]uint64{
		0: 0, 1: 1, wasm.PageSize - 1: 1, wasm.PageSize: 1, wasm.PageSize + 1: 2,
		wasm.MaxPages * wasm.PageSize: wasm.MaxPages, math.MaxUint64: 1 << 48,
	} {
		if got := wasm.Pages(bytes); got != want {
			t.Errorf("%d bytes have %d pages, want %d", bytes, got, want)
		}
	}
}

func TestSetBody(t *testing.T) {
	ids := func(m *wasm.Module) (all []wasm.SectionID) {
		for _, s := range m.Sections {
			all = append(all, s.ID)
		}
		return all
	}
	m, err := wasm.Decode(work.Trusted(context.Background()), addOne)
	if err != nil {
		t.Fatal(err)
	}
	m.SetBody(wasm.SectionMemory, []byte{1, 0, 1})
	m.SetBody(wasm.SectionDataCount, []byte{0})
	m.SetBody(wasm.SectionData, []byte{0})
	m.SetBody(wasm.SectionExport, nil)
	m.SetBody(wasm.SectionStart, nil) // does not exist
	m.SetBody(wasm.SectionType, []byte{1, 0x60, 0, 0})
	want := []wasm.SectionID{wasm.SectionType, wasm.SectionFunction, wasm.SectionMemory, wasm.SectionDataCount, wasm.SectionCode, wasm.SectionData}
	if got := ids(m); !slices.Equal(got, want) {
		t.Errorf("sections %v, want %v", got, want)
	}
	again, err := wasm.Decode(work.Trusted(context.Background()), m.Encode())
	if err != nil || len(again.Exports) != 0 || len(again.Memories) != 1 || len(again.Types[0].Params) != 0 {
		t.Errorf("decoded again: %+v, %v", again, err)
	}
}

// TestTruncation: a module that is cut anywhere is malformed, never a panic.
func TestTruncation(t *testing.T) {
	b := sample()
	frame, err := wasm.Split(b)
	if err != nil {
		t.Fatal(err)
	}
	whole := map[int]bool{8: true} // cuts between sections
	for _, s := range frame.Sections {
		whole[s.Offset+len(s.Body)] = true
	}
	for n := range b {
		_, err := wasm.Decode(work.Trusted(context.Background()), b[:n])
		var f *wasm.FormatError
		if !whole[n] && (!errors.As(err, &f) || f.Offset > n) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

func TestNameSectionIsNotTrusted(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, body := range map[string]string{
		"a count that is not there":    "\x01\x05\xff\xff\xff\xff\x0f",
		"a name that is not there":     "\x01\x03\x01\x00\x7f",
		"a subsection that is cut":     "\x01\x7f",
		"a number that is cut":         "\x80",
		"a name that is not UTF-8":     "\x01\x05\x01\x00\x02\xff\xfe",
		"a name longer than any other": "\x01" + string(wasm.AppendU32(nil, 304)) + "\x01\x00" + string(wasm.AppendName(nil, long)),
	} {
		m, err := wasm.Decode(work.Trusted(context.Background()), (&wasmtest.Module{Customs: []wasmtest.Custom{{Name: "name", Body: body}}}).Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := m.FuncName(0); len(got) > 128 || !strings.HasPrefix(long, got) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(addOne)
	f.Add(sample())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wasm.Decode(work.Trusted(context.Background()), b)
		if err != nil {
			var format *wasm.FormatError
			if !errors.As(err, &format) || format.Offset < 0 || format.Offset > len(b) {
				t.Errorf("%T %v", err, err)
			}
			return
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Error("encoding changed the module")
		}
		for i := range m.Code {
			_, it, err := m.Body(i, nil)
			end := it.Pos()
			for err == nil && it.Next() {
				if it.Instr.Pos != end || it.End <= it.Instr.Pos || it.End > m.Code[i].End {
					t.Fatalf("instruction from %d to %d after %d", it.Instr.Pos, it.End, end)
				}
				end = it.End
			}
			if it.Err() == nil && err == nil && end != m.Code[i].End {
				t.Errorf("body ended at %d, want %d", end, m.Code[i].End)
			}
		}
		m.FuncName(0)
	})
}

// TestOpcodesOfTheSpecification checks a number of each block of names (core
// specification, section 5.4).
func TestOpcodesOfTheSpecification(t *testing.T) {
	for op, want := range map[wasm.Op]uint16{
		wasm.OpI64Load32U: 0x35, wasm.OpI64Store32: 0x3e, wasm.OpI32GeU: 0x4f, wasm.OpI64GeU: 0x5a, wasm.OpF32Ge: 0x60, wasm.OpF64Ge: 0x66,
		wasm.OpI32Rotr: 0x78, wasm.OpI64Rotr: 0x8a, wasm.OpF32Copysign: 0x98, wasm.OpF64Copysign: 0xa6, wasm.OpI64TruncF64U: 0xb1,
		wasm.OpF64PromoteF32: 0xbb, wasm.OpF64ReinterpretI64: 0xbf, wasm.OpI64Extend32S: 0xc4, wasm.OpI64TruncSatF64U: 0xfc07,
	} {
		if uint16(op) != want {
			t.Errorf("%#x is named as %#x", want, uint16(op))
		}
	}
}
