package source

import (
	"debug/dwarf"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/internal/zstd"
)

// keptSection is the custom section that [Trim] adds: a frame of zstd with the sections of DWARF, in
// the order of sectionNames, each behind its length in four bytes. Bytes that nobody reads are zero.
const keptSection = "starling.source"

// keptSections returns the sections that Trim has kept, or nothing.
func (t *Table) keptSections() (kept [len(sectionNames)][]byte) {
	frame := t.content(keptSection)
	if len(frame) == 0 {
		return kept
	}
	b, err := zstd.Decompress(frame, t.work.Room())
	if err != nil || t.work.Hold(len(b)) != nil {
		return kept
	}
	c := &cursor{b: b}
	for i := range kept {
		kept[i] = c.take(c.uint(4))
	}
	return kept
}

// Trim returns a module that keeps of its DWARF what describes the author's own files, compressed: a
// linker adds that of the whole standard library, which is larger than most tools. The code stays.
func Trim(b *work.Budget, module []byte, own func(file string) bool) ([]byte, error) {
	m, err := wasm.Decode(b, module)
	if err != nil || m.Section(wasm.SectionCode) == nil || m.Custom(".debug_info") == nil {
		return module, err
	}
	units := map[uint64]bool{}
	var e entry
	read, err := open(b, m, module, nil)
	if err != nil {
		return nil, err
	}
	all := read.dwarf
	for i := range all.units {
		if u := &all.units[i]; all.entry(u, u.body, &e) && own(all.text(&e, dwarf.AttrName)) {
			units[u.start] = true
		}
	}
	if read, err = open(b, m, module, units); err != nil {
		return nil, err
	}
	d := read.dwarf
	v := &viewer{debugInfo: d, at: d.base, left: maxParts}
	for i := range d.units {
		u := &d.units[i]
		d.entry(u, u.body, &e)
		for _, e := range d.below(&e) {
			d.text(e, dwarf.AttrName)
			d.rangesOf(e)(func(uint32, uint32) bool { return true })
			v.evaluate(u, v.expression(e)) // which may have the index of an address
		}
	}
	var kept []byte
	for _, s := range d.kept {
		kept = append(binary.LittleEndian.AppendUint32(kept, uint32(len(s))), s...)
	}
	m.Sections = slices.DeleteFunc(m.Sections, func(s wasm.Section) bool { return strings.HasPrefix(s.Name, ".debug_") })
	body := append(wasm.AppendName(nil, keptSection), zstd.Compress(kept)...)
	return append(wasm.AppendU32(append(m.Encode(), byte(wasm.SectionCustom)), uint32(len(body))), body...), nil
}
