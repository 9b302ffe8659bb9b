package hostiletest

import (
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// Load is a family of modules that attack the loader.
type Load struct {
	Name   string
	Attack string             // the target of the attack
	Sizes  []int              // sizes to build, from the harmless end; nil for one module
	Build  func(n int) []byte // for families without sizes n is zero
}

// Modules returns the modules of the family.
func (l Load) Modules() [][]byte {
	if l.Sizes == nil {
		return [][]byte{l.Build(0)}
	}
	var all [][]byte
	for _, n := range l.Sizes {
		all = append(all, l.Build(n))
	}
	return all
}

// Loads returns every family that attacks the loader.
func Loads() []Load {
	return slices.Concat(counts(), indices(), forms(), shapes())
}

// huge is 2^32-1 as a count.
const huge = "\xff\xff\xff\xff\x0f"

// raw is a module of literal sections.
func raw(sections ...string) []byte { return []byte(wasmtest.Header + strings.Join(sections, "")) }

func section(id wasm.SectionID, body string) string {
	return string(wasmtest.Section(id, []byte(body)))
}

// The sections of a module with one function () -> ().
var (
	oneType = section(wasm.SectionType, "\x01\x60\x00\x00")
	oneFunc = oneType + section(wasm.SectionFunction, "\x01\x00")
	memory1 = section(wasm.SectionMemory, "\x01\x00\x01")
	table1  = section(wasm.SectionTable, "\x01\x70\x00\x01")
)

// body is a module with one function of that code, its locals first.
func body(code string) []byte {
	return raw(oneFunc + section(wasm.SectionCode, "\x01"+string(wasm.AppendName(nil, code))))
}

// withMemory is the same with a memory and a table.
func withMemory(code string) []byte {
	return raw(oneFunc + table1 + memory1 + section(wasm.SectionCode, "\x01"+string(wasm.AppendName(nil, code))))
}

// one returns a family of one module.
func one(name, attack string, module []byte) Load {
	return Load{Name: name, Attack: attack, Build: func(int) []byte { return module }}
}

// counts claim more than exists.
func counts() []Load {
	const allocate = "memory for as many items as the count says"
	all := []Load{
		one("parameters of a type, 2^32-1", allocate, raw(section(wasm.SectionType, "\x01\x60"+huge))),
		one("results of a type, 2^32-1", allocate, raw(section(wasm.SectionType, "\x01\x60\x00"+huge))),
		one("length of an import name, 2^32-1", allocate, raw(section(wasm.SectionImport, "\x01"+huge))),
		one("length of an export name, 2^32-1", allocate, raw(section(wasm.SectionExport, "\x01"+huge))),
		one("exports, 2^26", "six seconds and three gigabytes before an error", raw(section(wasm.SectionExport, "\x80\x80\x80\x20"))),
		one("items of an element segment, 2^32-1", allocate, raw(table1, section(wasm.SectionElement, "\x01\x00\x41\x00\x0b"+huge))),
		one("bytes of a data segment, 2^32-1", allocate, raw(memory1, section(wasm.SectionData, "\x01\x00\x41\x00\x0b"+huge))),
		one("size of a section, 2^32-1", allocate, raw("\x01"+huge)),
		one("size of a body, 2^32-1", allocate, raw(oneFunc, section(wasm.SectionCode, "\x01"+huge))),
		one("groups of locals, 2^32-1", allocate, body(huge+"\x0b")),
		one("locals, 2^32-1", "the engine's own stack frames", body("\x01"+huge+"\x7f\x0b")),
		one("locals, 2^27", "twelve seconds and three gigabytes, after which it is accepted", body("\x01\x80\x80\x80\x40\x7f\x0b")),
		one("locals, groups that overflow together", "a sum in 32 bits", body("\x02"+huge+"\x7f"+huge+"\x7f\x0b")),
		one("labels of a br_table, 2^32-1", allocate, body("\x00\x41\x00\x0e"+huge+"\x0b")),
		one("table entries, 2^27", "a gigabyte at each instantiation", raw(section(wasm.SectionTable, "\x01\x70\x00\x80\x80\x80\x40"))),
		one("table entries, 2^32-1", "memory at each instantiation", raw(section(wasm.SectionTable, "\x01\x70\x00"+huge))),
		one("pages of memory, 2^32-1", "memory at each instantiation", raw(section(wasm.SectionMemory, "\x01\x00"+huge))),
		one("a name section of 2^32-1 names", "a custom section that engines decode anyway", raw(section(wasm.SectionCustom, "\x04name\x01\x05"+huge))),
		one("a name section of 2^32-1 local names", "the same, one level deeper", raw(oneFunc, section(wasm.SectionCode, "\x01\x02\x00\x0b"), section(wasm.SectionCustom, "\x04name\x02\x07\x01\x00"+huge))),
	}
	for id, name := range map[wasm.SectionID]string{
		wasm.SectionType: "types", wasm.SectionImport: "imports", wasm.SectionFunction: "functions", wasm.SectionTable: "tables",
		wasm.SectionMemory: "memories", wasm.SectionGlobal: "globals", wasm.SectionExport: "exports",
		wasm.SectionElement: "element segments", wasm.SectionCode: "bodies", wasm.SectionData: "data segments",
	} {
		all = append(all, one(name+", 2^32-1", allocate, raw(section(id, huge))))
	}
	return all
}

// indices point outside their spaces, some of them to what a rewriter adds.
func indices() []Load {
	const added = "an index that begins to exist when the module is rewritten"
	return []Load{
		one("a function without a type", "the validator, which looks the type up before it checks", raw(
			oneType, section(wasm.SectionFunction, "\x02\x00\x63"), section(wasm.SectionCode, "\x02\x04\x00\x10\x01\x0b\x02\x00\x0b"))),
		one("a call beyond the functions", added, body("\x00\x10\x01\x0b")),
		one("a call of the refill function", added+": itself paid for", body("\x00\x10\x00\x0b")),
		one("a global that is not there, set", added+": the counter", body("\x00\x42\x00\x24\x00\x0b")),
		one("a global that is not there, read", added, body("\x00\x23\x01\x1a\x0b")),
		one("a local beyond the declared", added, body("\x00\x20\x00\x1a\x0b")),
		one("a label beyond the function", "the stack of blocks", body("\x00\x0c\x07\x0b")),
		one("a block of a type that is not there", added, body("\x00\x02\x05\x0b\x0b")),
		one("call_indirect of a type that is not there", added, withMemory("\x00\x41\x00\x11\x09\x00\x0b")),
		one("call_indirect through a table that is not there", "the table index", body("\x00\x41\x00\x11\x00\x00\x0b")),
		one("a load without a memory", "the memory index", body("\x00\x41\x00\x28\x02\x00\x1a\x0b")),
		one("an export of a function that is not there", added, raw(oneFunc, section(wasm.SectionExport, "\x01\x01f\x00\x05"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("an export of a global that is not there", added, raw(section(wasm.SectionExport, "\x01\x01g\x03\x00"))),
		one("a start function that is not there", added, raw(oneFunc, section(wasm.SectionStart, "\x03"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("an element that names no function", added, raw(oneFunc, table1, section(wasm.SectionElement, "\x01\x00\x41\x00\x0b\x01\x07"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("an element segment out of bounds", "an engine that ignores it", raw(oneFunc, table1, section(wasm.SectionElement, "\x01\x00\x41\x05\x0b\x01\x00"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("a data segment out of bounds", "memory beside the guest's", raw(memory1, section(wasm.SectionData, "\x01\x00\x41\x7f\x0b\x01x"))),
		one("a data segment at a negative address", "signed arithmetic", raw(memory1, section(wasm.SectionData, "\x01\x00\x41\x80\x80\x80\x80\x78\x0b\x01x"))),
		one("a segment placed by a global", "a place that is not constant", raw(memory1, section(wasm.SectionGlobal, "\x01\x7f\x00\x41\x00\x0b"), section(wasm.SectionData, "\x01\x00\x23\x00\x0b\x01x"))),
	}
}

// forms are encodings that parsers disagree about, and features not known to be safe.
func forms() []Load {
	return []Load{
		one("nothing", "a reader that expects a header", nil),
		one("a header alone, of another version", "a component", []byte("\x00asm\x0d\x00\x01\x00")),
		one("a header and nothing", "a module without anything", raw()),
		one("a number of eleven bytes", "readers of LEB128 that shift too far", raw("\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00")),
		one("a number with bits beyond 32", "readers that drop them", raw(section(wasm.SectionType, "\xff\xff\xff\xff\x7f"))),
		one("sections out of order", "a second look at what was decided", raw(section(wasm.SectionFunction, "\x00"), section(wasm.SectionType, "\x00"))),
		one("a section twice", "the second one wins, or both do", raw(oneType, oneType)),
		one("an unknown section", "features to come", raw("\x0d\x00")),
		one("bytes behind a section's items", "repair by rewriting", raw(section(wasm.SectionType, "\x00\x00"))),
		one("fewer bodies than functions", "a table indexed by the other", raw(oneFunc)),
		one("a data count that differs", "a table indexed by the other", raw(memory1, section(wasm.SectionDataCount, "\x05"), section(wasm.SectionData, "\x00"))),
		one("a body without end", "the instruction after the last", body("\x00\x01")),
		one("a body with code behind its end", "code that nobody has checked", body("\x00\x0b\x0b")),
		one("else without if", "the stack of blocks", body("\x00\x05\x0b")),
		one("an export twice", "which of them the host calls", raw(oneFunc, section(wasm.SectionExport, "\x02\x01f\x00\x00\x01f\x00\x00"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("names that are not UTF-8", "whoever prints them", raw(oneFunc, section(wasm.SectionExport, "\x01\x02\xff\xfe\x00\x00"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("an import that the host lacks", "the linker", raw(oneType, section(wasm.SectionImport, "\x01\x03env\x06system\x00\x00"))),
		one("an import of another type", "the registers of a host function", raw(section(wasm.SectionType, "\x01\x60\x01\x7e\x01\x7e"), section(wasm.SectionImport, "\x01\x0bstarling:v1\x03now\x00\x00"))),
		one("an imported memory", "the memory of another instance", raw(section(wasm.SectionImport, "\x01\x03env\x03mem\x02\x00\x01"))),
		one("an imported global", "the counter of another instance", raw(section(wasm.SectionImport, "\x01\x0dstarling:fuel\x05limit\x03\x7e\x01"))),
		one("an import of the refill function", "fuel for nothing", raw(oneType, section(wasm.SectionImport, "\x01\x0dstarling:fuel\x06refill\x00\x00"))),
		one("an export under a reserved name", "the name by which the host finds the counter", raw(section(wasm.SectionGlobal, "\x01\x7e\x01\x42\x00\x0b"), section(wasm.SectionExport, "\x01\x0dstarling:fuel\x03\x00"))),
		one("a passive data segment", "state that a reset does not see", raw(memory1, section(wasm.SectionData, "\x01\x01\x01x"))),
		one("a declarative element segment", "functions as values", raw(oneFunc, section(wasm.SectionElement, "\x01\x03\x00\x01\x00"), section(wasm.SectionCode, "\x01\x02\x00\x0b"))),
		one("ref.func", "memory of the engine that is not freed", body("\x00\xd2\x00\x1a\x0b")),
		one("table.set", "state that a reset does not see", withMemory("\x00\x41\x00\xd0\x70\x26\x00\x0b")),
		one("table.grow", "memory that no limit counts", withMemory("\x00\xd0\x70\x41\x7f\xfc\x0f\x00\x1a\x0b")),
		one("table.fill", "time that no fuel counts", withMemory("\x00\x41\x00\xd0\x70\x41\x7f\xfc\x11\x00\x0b")),
		one("data.drop", "state that a reset does not see", withMemory("\x00\xfc\x09\x00\x0b")),
		one("vector instructions", "NaNs that differ between processors", body("\x00\xfd\x0c\x0b")),
		one("atomic instructions", "waiting for other threads", withMemory("\x00\xfe\x03\x00\x0b")),
		one("a tail call", "frames that nobody counts", body("\x00\x12\x00\x0b")),
		one("exceptions", "exits that skip the epilogue", body("\x00\x06\x40\x0b\x0b")),
		one("a 64-bit memory", "addresses beyond four gigabytes", raw(section(wasm.SectionMemory, "\x01\x04\x01"))),
		one("a shared memory", "other threads", raw(section(wasm.SectionMemory, "\x01\x03\x01\x01"))),
		one("two memories", "a memory that no limit counts", raw(section(wasm.SectionMemory, "\x02\x00\x01\x00\x01"))),
		one("two tables", "the table index", raw(section(wasm.SectionTable, "\x02\x70\x00\x01\x70\x00\x01"))),
		one("a structure type", "garbage collection", raw(section(wasm.SectionType, "\x01\x5f\x00"))),
		one("an unknown opcode", "what comes next", body("\x00\x27\x0b")),
		one("an unknown opcode of the second page", "what comes next", body("\x00\xfc\x7f\x0b")),
		{Name: "cut off", Attack: "readers that look beyond the end", Sizes: []int{1, 4, 8, 9, 12, 20, 30, 40, 60, 80, 100},
			Build: func(n int) []byte { whole := Spin(); return whole[:min(n, len(whole))] }},
	}
}
