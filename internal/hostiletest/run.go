package hostiletest

import (
	"slices"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// Run is a tool that passes the gate and attacks when its input is an object, such as
// [Attack]. Any other input it answers with [Answer].
type Run struct {
	Name   string
	Attack string
	Wasm   []byte
	Always bool // it attacks before there is an input, so that no call succeeds
}

// Attack is an input that makes a run's tool attack.
const Attack = `{}`

// Answer is the output of a run's tool for any other input.
const Answer = `{"output":"well"}`

// Addresses in the memory of a tool.
const (
	roomAt    = 0x1000
	answerAt  = 0x2000
	vectorsAt = 0x3000 // of fd_write: 64 KiB from address 0
	scratchAt = 0x4000
)

// The indices of the functions that every tool imports, in their order.
const (
	fnNow = iota
	fnRandom
	fnHTTP
	fnFdWrite
	fnRandomGet
	fnClock
	fnPoll
	fnExit
	fnYield
	fnAlloc    // the first function of the tool itself
	fnDescribe // every attack may call it, too
	fnExecute
	fnExtra // the first function that an attack adds
)

var imports = []struct{ module, name, signature string }{
	{abi.Version, abi.ImportNow, ":I"}, {abi.Version, abi.ImportRandom, ":I"}, {abi.Version, abi.ImportHTTP, "iiii:I"},
	{abi.WASIModule, "fd_write", "iiii:i"}, {abi.WASIModule, "random_get", "ii:i"}, {abi.WASIModule, "clock_time_get", "iIi:i"},
	{abi.WASIModule, "poll_oneoff", "iiii:i"}, {abi.WASIModule, "proc_exit", "i:"}, {abi.WASIModule, "sched_yield", ":i"},
}

const description = `{"tools":[{"name":"hostile","description":"Attacks.","input_schema":{"type":"object"}}]}`

// tool is a module with an attack. Locals 2 to 5 are i32, i64, f32 and f64.
func tool(attack *wasm.Asm, extra ...wasmtest.Func) *wasmtest.Module {
	code := asm().Index(wasm.OpLocalGet, 0).Access(wasm.OpI32Load8U, 0).I32('{').Op(wasm.OpI32Eq).Block(wasm.OpIf, wasm.BlockEmpty)
	asmAfter(code, attack).Op(wasm.OpEnd).I64(int64(abi.Pack(answerAt, uint32(len(Answer)))))
	m := &wasmtest.Module{
		Memory:  wasmtest.Pages(2),
		Table:   wasmtest.Pages(4),
		Globals: []wasmtest.Global{{Type: wasm.I32, Mutable: true}, {Type: wasm.F64, Mutable: true}},
		Exports: []wasmtest.Export{{Name: abi.ExportMemory, Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			{Export: abi.ExportAlloc, Type: wasmtest.Type("i:i"), Code: asm().I32(roomAt)},
			{Export: abi.ExportDescribe, Type: wasmtest.Type(":I"), Code: asm().I64(int64(abi.Pack(scratchAt, uint32(len(description)))))},
			{Export: abi.ExportExecute, Type: wasmtest.Type("ii:I"), Code: code, Locals: []wasm.LocalGroup{
				{Count: 1, Type: wasm.I32}, {Count: 1, Type: wasm.I64}, {Count: 1, Type: wasm.F32}, {Count: 1, Type: wasm.F64}}},
		},
		Elements: []wasmtest.Element{{Funcs: []uint32{fnAlloc, fnDescribe, fnExecute}}},
		Data: []wasmtest.Data{
			{Offset: answerAt, Bytes: Answer}, {Offset: scratchAt, Bytes: description},
			{Offset: vectorsAt, Bytes: "\x00\x00\x00\x00\x00\x00\x01\x00"},
		},
	}
	for _, im := range imports {
		m.Imports = append(m.Imports, wasmtest.Import{Module: im.module, Name: im.name, Type: wasmtest.Type(im.signature)})
	}
	m.Funcs = append(m.Funcs, extra...)
	return m
}

// forever repeats a piece.
func forever(piece *wasm.Asm) *wasm.Asm {
	return asmAfter(asm().Block(wasm.OpLoop, wasm.BlockEmpty), piece).Index(wasm.OpBr, 0).Op(wasm.OpEnd)
}

// Spin is a tool that spins for ever.
func Spin() []byte { return tool(forever(asm())).Bytes() }

// extra is a function of the tool itself, () -> ().
func extra(code *wasm.Asm) wasmtest.Func {
	return wasmtest.Func{Type: wasmtest.Type(":"), Locals: []wasm.LocalGroup{{Count: 2, Type: wasm.I32}}, Code: code}
}

func callOf(fn uint32) *wasm.Asm { return asm().Index(wasm.OpCall, fn) }

// Runs returns every family that attacks while it runs.
func Runs() []Run {
	return append(append(endless(), outcomes()...), floods()...)
}

// endless runs on.
func endless() []Run {
	fill := func(size int32) *wasm.Asm { return asm().I32(0).I32(1).I32(size).Memory(wasm.OpMemoryFill) }
	return []Run{
		{"a loop", "whoever waits", Spin(), false},
		{"a loop of arithmetic", "loops whose fuel is cached", tool(forever(asm().Index(wasm.OpLocalGet, 3).I64(7).Op(wasm.OpI64Mul).I64(1).Op(wasm.OpI64Add).Index(wasm.OpLocalSet, 3))).Bytes(), false},
		{"a loop of NaNs", "canonicalisation", tool(forever(asm().Index(wasm.OpLocalGet, 5).Op(wasm.OpF64Sqrt).Index(wasm.OpLocalGet, 5).Op(wasm.OpF64Div).Index(wasm.OpGlobalSet, 1))).Bytes(), false},
		{"a loop of divisions", "the slowest instruction for its price", tool(forever(asm().I64(-1).I64(3).Op(wasm.OpI64DivU, wasm.OpDrop))).Bytes(), false},
		{"a loop of reads all over memory", "the caches", tool(forever(asm().
			Index(wasm.OpLocalGet, 2).I32(4099).Op(wasm.OpI32Add).I32(0x1ffff).Op(wasm.OpI32And).Index(wasm.OpLocalTee, 2).Access(wasm.OpI32Load8U, 0).Op(wasm.OpDrop))).Bytes(), false},
		{"a loop of writes all over memory", "the reset", tool(forever(asm().
			Index(wasm.OpLocalGet, 2).I32(4099).Op(wasm.OpI32Add).I32(0x1fff0).Op(wasm.OpI32And).Index(wasm.OpLocalTee, 2).Index(wasm.OpLocalGet, 2).Access(wasm.OpI32Store, 0))).Bytes(), false},
		{"a loop of indirect calls", "calls that no loop head sees", indirect(forever(asm().I32(1).Index(wasm.OpCallIndirect, 0).Op(wasm.OpDrop))), false},
		{"a tree of calls without a loop", "checks at loop heads alone", callTree(45).Bytes(), false},
		{"recursion that goes nowhere deep", "the same, with one function", tool(callOf(fnExtra), extra(asm().
			Index(wasm.OpGlobalGet, 0).I32(40).Op(wasm.OpI32GtS).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpReturn, wasm.OpEnd).
			Index(wasm.OpGlobalGet, 0).I32(1).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, 0).Index(wasm.OpCall, fnExtra).Index(wasm.OpCall, fnExtra).
			Index(wasm.OpGlobalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpGlobalSet, 0))).Bytes(), false},
		{"a straight line", "the longest way between two checks", tool(asmAfter(asm(), times(100_000, func(a *wasm.Asm, _ uint32) { a.I32(0).Op(wasm.OpDrop) }))).Bytes(), false},
		{"calls of a leaf in a row", "functions without checks", tool(times(50_000, func(a *wasm.Asm, _ uint32) { a.Index(wasm.OpCall, fnExtra) }), extra(times(30, func(a *wasm.Asm, _ uint32) { a.I32(0).Op(wasm.OpDrop) }))).Bytes(), false},
		{"memory.fill in a row", "instructions that take long", tool(times(1000, func(a *wasm.Asm, _ uint32) { asmAfter(a, fill(0x1fff0)) })).Bytes(), false},
		{"memory.fill for ever", "the same", tool(forever(fill(0x1fff0))).Bytes(), false},
		{"memory.copy for ever", "the same", tool(forever(asm().I32(1).I32(0).I32(0x1fff0).Memory(wasm.OpMemoryCopy))).Bytes(), false},
		{"memory.grow for ever", "what growing costs the host", tool(forever(asm().I32(1).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop))).Bytes(), false},
		{"a loop in the start function", "the time before there is a deadline", started(tool(asm(), extra(forever(asm())))), true},
		{"a loop in _initialize", "the same", initialised(tool(asm(), extra(forever(asm())))), true},
		{"a br_table that comes back", "dispatch", tool(asm().Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpLocalGet, 2).I32(3).Op(wasm.OpI32And).BrTable(0, 0, 0, 0).Op(wasm.OpEnd)).Bytes(), false},
		{"waiting for a clock", "real time", tool(forever(asm().I32(1).I64(0).I32(scratchAt).Index(wasm.OpCall, fnClock).Op(wasm.OpDrop))).Bytes(), false},
		{"sleeping for ever", "real time", tool(forever(asm().I32(scratchAt).I32(scratchAt+256).I32(1).I32(scratchAt+512).Index(wasm.OpCall, fnPoll).Op(wasm.OpDrop))).Bytes(), false},
		{"yielding for ever", "host functions that cost nothing", tool(forever(callOf(fnYield).Op(wasm.OpDrop))).Bytes(), false},
	}
}

// indirect is a tool whose type 0 is the type of the description function, which is in the
// table at index 1.
func indirect(attack *wasm.Asm) []byte {
	m := tool(attack)
	m.Types = []wasm.FuncType{wasmtest.Type(":I")}
	return m.Bytes()
}

// callTree is a tool of depth functions, each calling the next one twice: 2^depth calls
// without a loop.
func callTree(depth int) *wasmtest.Module {
	var functions []wasmtest.Func
	for i := range uint32(depth) {
		code := asm()
		if int(i) < depth-1 {
			code.Index(wasm.OpCall, fnExtra+i+1).Index(wasm.OpCall, fnExtra+i+1)
		}
		functions = append(functions, extra(code))
	}
	return tool(callOf(fnExtra), functions...)
}

// started makes the first added function the start function.
func started(m *wasmtest.Module) []byte {
	start := uint32(fnExtra)
	m.Start = &start
	return m.Bytes()
}

// initialised exports the first added function as _initialize.
func initialised(m *wasmtest.Module) []byte {
	m.Funcs[fnExtra-fnAlloc].Export = abi.ExportInitialize
	return m.Bytes()
}

// outcomes are calls that end in every possible way, most of them badly.
func outcomes() []Run {
	result := func(address, length uint32) []byte {
		return tool(asm().I64(int64(abi.Pack(address, length))).Op(wasm.OpReturn)).Bytes()
	}
	lie := func(code *wasm.Asm) []byte { return tool(code).Bytes() }
	m := tool(asm())
	m.Funcs[0].Code = asm().I32(-1)
	lyingAlloc := m.Bytes()
	return []Run{
		{"recursion", "the native stack", tool(callOf(fnExtra), extra(callOf(fnExtra))).Bytes(), false},
		{"recursion of two functions", "the native stack", tool(callOf(fnExtra), extra(callOf(fnExtra+1)), extra(callOf(fnExtra))).Bytes(), false},
		{"recursion through the table", "the native stack", tool(asm().Index(wasm.OpLocalGet, 0).Index(wasm.OpLocalGet, 1).Index(wasm.OpCall, fnExecute).Op(wasm.OpReturn)).Bytes(), false},
		{"recursion with large frames", "the native stack, with as many locals as there may be", tool(callOf(fnExtra), wasmtest.Func{Type: wasmtest.Type(":"), Locals: []wasm.LocalGroup{{Count: 4_000, Type: wasm.I64}},
			Code: asmAfter(times(4_000, func(a *wasm.Asm, i uint32) {
				a.Index(wasm.OpLocalGet, i).I64(1).Op(wasm.OpI64Add).Index(wasm.OpLocalSet, i)
			}).Index(wasm.OpCall, fnExtra),
				times(4_000, func(a *wasm.Asm, i uint32) { a.Index(wasm.OpLocalGet, i).Op(wasm.OpDrop) }))}).Bytes(), false},
		{"recursion with many parameters", "the native stack, with as many operands on it as a call may have", tool(
			times(128, func(a *wasm.Asm, i uint32) { a.I64(int64(i)) }).Index(wasm.OpCall, fnExtra),
			wasmtest.Func{Type: wasm.FuncType{Params: slices.Repeat([]wasm.ValType{wasm.I64}, 128)}, Code: times(128, func(a *wasm.Asm, i uint32) {
				a.Index(wasm.OpLocalGet, i)
			}).Index(wasm.OpCall, fnExtra)}).Bytes(), false},
		{"unreachable", "an instance that has trapped", lie(asm().Op(wasm.OpUnreachable)), false},
		{"a division by zero", "an instance that has trapped", lie(asm().I32(1).I32(0).Op(wasm.OpI32DivS, wasm.OpDrop)), false},
		{"a division that overflows", "an instance that has trapped", lie(asm().I32(-1<<31).I32(-1).Op(wasm.OpI32DivS, wasm.OpDrop)), false},
		{"a truncation of NaN", "an instance that has trapped", lie(asm().Index(wasm.OpLocalGet, 5).Index(wasm.OpLocalGet, 5).Op(wasm.OpF64Div, wasm.OpI32TruncF64S, wasm.OpDrop)), false},
		{"a load beyond memory", "memory beside the guest's", lie(asm().I32(-1).Access(wasm.OpI32Load, 0xffffffff).Op(wasm.OpDrop)), false},
		{"a store across the end of memory", "memory beside the guest's", lie(asm().I32(0x1fffe).I32(-1).Access(wasm.OpI32Store, 0)), false},
		{"memory.fill across the end", "what it has written before it traps", lie(asm().I32(0x1fff0).I32(1).I32(-1).Memory(wasm.OpMemoryFill)), false},
		{"memory.copy across the end", "what it has written before it traps", lie(asm().I32(0x1fff0).I32(0).I32(0x20000).Memory(wasm.OpMemoryCopy)), false},
		{"an indirect call of another type", "registers", lie(asm().I32(0).Index(wasm.OpCallIndirect, 0).Op(wasm.OpDrop)), false},
		{"an indirect call beyond the table", "code beside the guest's", indirect(asm().I32(-1).Index(wasm.OpCallIndirect, 0).Op(wasm.OpDrop)), false},
		{"an indirect call of nothing", "code beside the guest's", indirect(asm().I32(3).Index(wasm.OpCallIndirect, 0).Op(wasm.OpDrop)), false},
		{"an exit", "the process", lie(asm().I32(0).Index(wasm.OpCall, fnExit)), false},
		{"an exit with a code of 2^32-1", "the process", lie(asm().I32(-1).Index(wasm.OpCall, fnExit)), false},
		{"a result beyond memory", "memory beside the guest's", result(0xfffffff0, 0x20), false},
		{"a result of four gigabytes", "memory of the host", result(0, 0xffffffff), false},
		{"a result over the whole address space", "sums in 32 bits", result(0xffffffff, 0xffffffff), false},
		{"a result that is not JSON", "its parser", result(0, 64), false},
		{"an allocator that lies", "memory beside the guest's", lyingAlloc, true},
		{"memory grown to the limit, then a trap", "the reset of grown memories", lie(asm().Block(wasm.OpLoop, wasm.BlockEmpty).
			I32(1).Memory(wasm.OpMemoryGrow).I32(-1).Op(wasm.OpI32Ne).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd, wasm.OpUnreachable)), false},
		{"memory grown by four gigabytes", "arithmetic on sizes", lie(asm().I32(-1).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop)), false},
		{"a start function that traps", "instantiation", started(tool(asm(), extra(asm().Op(wasm.OpUnreachable)))), true},
		{"a start function with effects", "the time before there is a call", started(tool(asm(), extra(callOf(fnNow).Op(wasm.OpDrop)))), true},
	}
}

// floods ask the host for too much.
func floods() []Run {
	return []Run{
		{"clock readings", "the log", tool(forever(callOf(fnNow).Op(wasm.OpDrop))).Bytes(), false},
		{"random numbers", "the log", tool(forever(callOf(fnRandom).Op(wasm.OpDrop))).Bytes(), false},
		{"requests of nothing", "the log", tool(forever(asm().I32(0).I32(16).I32(scratchAt).I32(16).Index(wasm.OpCall, fnHTTP).Op(wasm.OpDrop))).Bytes(), false},
		{"requests as large as memory", "the log and the parser", tool(forever(asm().I32(0).I32(0x20000).I32(0).I32(0).Index(wasm.OpCall, fnHTTP).Op(wasm.OpDrop))).Bytes(), false},
		{"a request beyond memory", "memory beside the guest's", tool(asm().I32(-16).I32(32).I32(0).I32(0).Index(wasm.OpCall, fnHTTP).Op(wasm.OpDrop)).Bytes(), false},
		{"a buffer beyond memory", "memory beside the guest's", tool(asm().I32(0).I32(16).I32(0x1fff0).I32(-1).Index(wasm.OpCall, fnHTTP).Op(wasm.OpDrop)).Bytes(), false},
		{"log lines", "the log", tool(forever(asm().I32(2).I32(vectorsAt).I32(1).I32(scratchAt).Index(wasm.OpCall, fnFdWrite).Op(wasm.OpDrop))).Bytes(), false},
		{"random bytes", "time that no instruction takes", tool(forever(asm().I32(0).I32(0x20000).Index(wasm.OpCall, fnRandomGet).Op(wasm.OpDrop))).Bytes(), false},
		{"random bytes beyond memory", "memory beside the guest's", tool(asm().I32(0x1ffff).I32(-1).Index(wasm.OpCall, fnRandomGet).Op(wasm.OpDrop)).Bytes(), false},
		{"log lines beyond memory", "memory beside the guest's", tool(asm().I32(2).I32(-8).I32(100_000).I32(-4).Index(wasm.OpCall, fnFdWrite).Op(wasm.OpDrop)).Bytes(), false},
	}
}
