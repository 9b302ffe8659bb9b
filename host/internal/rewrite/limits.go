package rewrite

// Limits are the maxima that the gate accepts. They bound the engine's work on
// a module before the first instruction runs: that work cannot be cancelled,
// and parts of it grow with the square of the input. A zero field accepts
// nothing of its kind; begin with [DefaultLimits].
//
// The defaults come from modules that the toolchains of Go, Rust, C, C++, Zig,
// AssemblyScript and QuickJS emit, with a margin; the largest seen is in the
// comments.
type Limits struct {
	ModuleBytes int // of the whole binary; seen: 32.8 MB, CUE in Go

	Types           int // seen: 120
	Params          int // of one function type; seen: 13
	Results         int // of one function type; seen: 3
	Imports         int // seen: 46
	Functions       int // that have a body; seen: 19,600, cel-go with excelize
	Globals         int // seen: 30
	Exports         int // seen: 60
	NameBytes       int // of one import or export name
	TableEntries    int // of the one table; seen: 23,700
	ElementSegments int // seen: 3
	ElementItems    int // of all element segments; seen: 19,600
	DataSegments    int // seen: 100,000, the most that the linker of Go writes

	BodyBytes   int // of one function; seen: 345 KB, cel-go with excelize
	Locals      int // of one function, parameters included; seen: 2,457, printf_core of musl in Haskell
	TotalLocals int // of all functions
	Nesting     int // of blocks; seen: 3,336, cel-go with excelize
	Blocks      int // of one function: blocks, branches and, four each, bulk operations; seen: 13,945, cel-go with excelize
	BranchTable int // labels of one br_table; seen: 5,490, esbuild in Go

	// FunctionCost and ModuleCost bound the estimated cost of compiling, see
	// compileCost. Only they bound the products: blocks times locals, loops times
	// values. Seen: 59 million, cel-go with excelize, and 636 million, CUE.
	FunctionCost uint64
	ModuleCost   uint64
}

// DefaultLimits returns the limits that real tools pass and that keep the
// worst accepted module from costing more than a large honest one.
func DefaultLimits() Limits {
	return Limits{
		ModuleBytes:     32 << 20,
		Types:           10_000,
		Params:          128,
		Results:         16,
		Imports:         1_000,
		Functions:       40_000,
		Globals:         1_000,
		Exports:         1_000,
		NameBytes:       512,
		TableEntries:    65_536,
		ElementSegments: 1_000,
		ElementItems:    131_072,
		DataSegments:    131_072,
		BodyBytes:       512 << 10,
		Locals:          4_096,
		TotalLocals:     1 << 20,
		Nesting:         4_096,
		Blocks:          16_384,
		BranchTable:     8_192,
		FunctionCost:    75_000_000,
		ModuleCost:      800_000_000,
	}
}

// Options control what [Rewrite] adds to a module.
type Options struct {
	// MemoryPages is the most memory that the guest may have, in pages of
	// 64 KiB. It becomes the maximum of the module's memory, if the module does
	// not declare a lower one. Zero means [DefaultMemoryPages].
	MemoryPages uint32
	// Depth is the budget of the call stack, in slots: see frameSlots. It is
	// the initial value of [GlobalDepth]. Zero means [DefaultDepth].
	Depth uint32
	// Profile makes every function report when it is entered and when it returns,
	// see [EnterName]. The counts stay the same.
	Profile bool

	// Offsets makes the result have [Result.Offsets].
	Offsets bool

	// Explain makes the module set [GlobalTrap] to the traps that engines of
	// JavaScript do not tell apart. The counts stay the same.
	Explain bool
}

// The values that the zero [Options] mean.
const (
	DefaultMemoryPages = 1024    // 64 MiB
	DefaultDepth       = 1 << 17 // about 1 MiB of native stack
)
