package rewrite

import "github.com/starling-host/starling/host/wasm"

// Info describes a module that passed [Check].
type Info struct {
	Imports  []Import // in the module's order
	Exports  []Export // in the module's order
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
