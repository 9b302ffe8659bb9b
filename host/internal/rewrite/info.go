package rewrite

import "github.com/starling-host/starling/internal/wasm"

// Info describes a module that passed the gate.
type Info struct {
	Imports  []Import // in the module's order
	Exports  []Export // in the module's order
	Features []string // that it uses beyond the first version of WebAssembly, by the names of the proposals; and floating point
	HasStart bool     // it has a start function
	Memory   Memory
	Counts   Counts
}

// Export is one export of a module.
type Export struct {
	Name string
	Kind wasm.ExternKind
	Type wasm.FuncType // of a function; empty for the other kinds
}

// Export returns the export with the given name.
func (i *Info) Export(name string) (Export, bool) {
	for _, e := range i.Exports {
		if e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}

// Memory is the declaration of a module's memory, in pages of 64 KiB.
type Memory struct {
	Present  bool
	Min, Max uint32 // Max is 65536 when the module declares none
}

// Counts are the figures that [Limits] bound, for the reader.
type Counts struct {
	Functions, Instructions, TableEntries, ElementItems, DataSegments int
	LargestBody, MostLocals, MostBlocks, DeepestNesting, LongestTable int // of one function
	FunctionCost, ModuleCost                                          uint64
}

// Headroom is one limit of the gate beside a module's count.
type Headroom struct {
	What  string `json:"what"`
	Value uint64 `json:"value"`
	Limit uint64 `json:"limit"`
}

// Headroom compares the counts with the limits.
func (c Counts) Headroom(l Limits) []Headroom {
	return []Headroom{
		{"functions", uint64(c.Functions), uint64(l.Functions)},
		{"table entries", uint64(c.TableEntries), uint64(l.TableEntries)},
		{"items of element segments", uint64(c.ElementItems), uint64(l.ElementItems)},
		{"data segments", uint64(c.DataSegments), uint64(l.DataSegments)},
		{"bytes of the largest function body", uint64(c.LargestBody), uint64(l.BodyBytes)},
		{"locals of a function", uint64(c.MostLocals), uint64(l.Locals)},
		{"blocks of a function", uint64(c.MostBlocks), uint64(l.Blocks)},
		{"nesting of blocks", uint64(c.DeepestNesting), uint64(l.Nesting)},
		{"labels of a br_table", uint64(c.LongestTable), uint64(l.BranchTable)},
		{"estimated cost of compiling a function", c.FunctionCost, l.FunctionCost},
		{"estimated cost of compiling the module", c.ModuleCost, l.ModuleCost},
	}
}
