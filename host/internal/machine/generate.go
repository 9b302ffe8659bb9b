//go:build ignore

// This program writes dispatch.go: the operations of the machine, the tables by which a body is
// translated to them, and the loop that executes them. An argument is the folder to write to.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"strings"
)

// The operators of integers, in the order of their opcodes. U is the unsigned type of the operands
// x and y, S the signed one, and W their width in bits.
var arithmetic = rows(`
Add   x + y
Sub   x - y
Mul   x * y
DivS  U(S(x) / S(y))
DivU  x / y
RemS  U(S(x) % S(y))
RemU  x % y
And   x & y
Or    x | y
Xor   x ^ y
Shl   x << (y & (W - 1))
ShrS  U(S(x) >> (y & (W - 1)))
ShrU  x >> (y & (W - 1))
Rotl  bits.RotateLeftW(x, int(y&(W-1)))
Rotr  bits.RotateLeftW(x, -int(y&(W-1)))
`)

var comparisons = rows(`
Eq   x == y
Ne   x != y
LtS  S(x) < S(y)
LtU  x < y
GtS  S(x) > S(y)
GtU  x > y
LeS  S(x) <= S(y)
LeU  x <= y
GeS  S(x) >= S(y)
GeU  x >= y
`)

var floatComparisons = rows(`
Eq  x == y
Ne  x != y
Lt  x < y
Gt  x > y
Le  x <= y
Ge  x >= y
`)

var counting = rows(`
Clz     bits.LeadingZerosW(x)
Ctz     bits.TrailingZerosW(x)
Popcnt  bits.OnesCountW(x)
`)

// The operators of floats. A function of package math that has no variant for 32 bits gives the
// same result from 64, once that is rounded.
var floatUnary = rows(`
Ceil     math.Ceil
Floor    math.Floor
Trunc    math.Trunc
Nearest  math.RoundToEven
Sqrt     math.Sqrt
`)

var floatBinary = rows(`
Add  x + y
Sub  x - y
Mul  x * y
Div  x / y
Min  min(x, y)
Max  max(x, y)
`)

// The conversions that cannot trap: name, opcode, signature, and the result of the operand v as bits.
var conversions = rows(`
I32WrapI64         a7 I:i uint64(uint32(v))
I64ExtendI32S      ac i:I uint64(int64(int32(v)))
I64ExtendI32U      ad i:I uint64(uint32(v))
F32ConvertI32S     b2 i:f f32(float32(int32(v)))
F32ConvertI32U     b3 i:f f32(float32(uint32(v)))
F32ConvertI64S     b4 I:f f32(float32(int64(v)))
F32ConvertI64U     b5 I:f f32(float32(v))
F32DemoteF64       b6 F:f f32(float32(math.Float64frombits(v)))
F64ConvertI32S     b7 i:F math.Float64bits(float64(int32(v)))
F64ConvertI32U     b8 i:F math.Float64bits(float64(uint32(v)))
F64ConvertI64S     b9 I:F math.Float64bits(float64(int64(v)))
F64ConvertI64U     ba I:F math.Float64bits(float64(v))
F64PromoteF32      bb f:F math.Float64bits(float64(math.Float32frombits(uint32(v))))
I32ReinterpretF32  bc f:i v
I64ReinterpretF64  bd F:I v
F32ReinterpretI32  be i:f v
F64ReinterpretI64  bf I:F v
I32Extend8S        c0 i:i uint64(uint32(int8(v)))
I32Extend16S       c1 i:i uint64(uint32(int16(v)))
I64Extend8S        c2 I:I uint64(int8(v))
I64Extend16S       c3 I:I uint64(int16(v))
I64Extend32S       c4 I:I uint64(int32(v))
`)

// Loads and stores: name, opcode, type, bytes, and the value at b, or how v is put there.
var loads = rows(`
I32Load     28 i 4 uint64(le.Uint32(b))
I64Load     29 I 8 le.Uint64(b)
F32Load     2a f 4 uint64(le.Uint32(b))
F64Load     2b F 8 le.Uint64(b)
I32Load8S   2c i 1 uint64(uint32(int8(b[0])))
I32Load8U   2d i 1 uint64(b[0])
I32Load16S  2e i 2 uint64(uint32(int16(le.Uint16(b))))
I32Load16U  2f i 2 uint64(le.Uint16(b))
I64Load8S   30 I 1 uint64(int8(b[0]))
I64Load8U   31 I 1 uint64(b[0])
I64Load16S  32 I 2 uint64(int16(le.Uint16(b)))
I64Load16U  33 I 2 uint64(le.Uint16(b))
I64Load32S  34 I 4 uint64(int32(le.Uint32(b)))
I64Load32U  35 I 4 uint64(le.Uint32(b))
`)

var stores = rows(`
I32Store    36 i 4 le.PutUint32(b, uint32(v))
I64Store    37 I 8 le.PutUint64(b, v)
F32Store    38 f 4 le.PutUint32(b, uint32(v))
F64Store    39 F 8 le.PutUint64(b, v)
I32Store8   3a i 1 b[0] = byte(v)
I32Store16  3b i 2 le.PutUint16(b, uint16(v))
I64Store8   3c I 1 b[0] = byte(v)
I64Store16  3d I 2 le.PutUint16(b, uint16(v))
I64Store32  3e I 4 le.PutUint32(b, uint32(v))
`)

// rows splits a table into its lines and their first word from the rest.
func rows(table string) (all [][2]string) {
	for line := range strings.Lines(strings.TrimSpace(table)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, [2]string{name, strings.TrimSpace(rest)})
	}
	return all
}

var names, cases, plain, fused bytes.Buffer

// operation adds an operation and the code that executes it.
func operation(name, format string, args ...any) string {
	fmt.Fprintf(&names, "\t%s\n", name)
	fmt.Fprintf(&cases, "case %s:\n%s\n", name, fmt.Sprintf(format, args...))
	return name
}

// instruction enters an instruction of WebAssembly into the table: its signature, the operation on
// slots, and, or zero, the one whose last operand is a constant.
func instruction(code int, signature, slots, constant string) {
	fmt.Fprintf(&plain, "\t%#02x: {%q, %s, %s},\n", code, signature, slots, constant)
}

// decides adds the operation op that puts a condition into a slot, and the two that branch instead.
func decides(op, operands, constants, condition string) string {
	operation(op, "%s\nif %s {\nfr[in.d] = 1\n} else {\nfr[in.d] = 0\n}", operands, condition)
	no := operation(op+"BrIfNot", "%s\nif !(%s) {\npc = int(in.imm >> 32)\n}", constants, condition)
	yes := operation(op+"BrIf", "%s\nif %s {\npc = int(in.imm >> 32)\n}", constants, condition)
	fmt.Fprintf(&fused, "\t%s: {%s, %s},\n", op, no, yes)
	return op
}

func integers(bits int, prefix string, compare, count, compute int) {
	letter := map[int]string{32: "i", 64: "I"}[bits]
	unsigned := fmt.Sprintf("uint%d", bits)
	width := strings.NewReplacer("U(", unsigned+"(", "S(", fmt.Sprintf("int%d(", bits), "W", fmt.Sprint(bits)).Replace
	slots := fmt.Sprintf("x, y := %[1]s(fr[in.a]), %[1]s(fr[in.b])", unsigned)
	constant := fmt.Sprintf("x, y := %[1]s(fr[in.a]), %[1]s(in.imm)", unsigned)
	beside := fmt.Sprintf("x, y := %s(fr[in.a]), %s(uint32(in.imm))", unsigned, unsigned) // beside a target
	eqz := decides("op"+prefix+"Eqz", "x := "+unsigned+"(fr[in.a])", "x := "+unsigned+"(fr[in.a])", "x == 0")
	instruction(compare, letter+":i", eqz, "0")
	for i, c := range comparisons {
		name := "op" + prefix + c[0]
		instruction(compare+1+i, letter+letter+":i", decides(name, slots, slots, width(c[1])), decides(name+"Const", constant, beside, width(c[1])))
	}
	for i, c := range counting {
		instruction(count+i, letter+":"+letter, operation("op"+prefix+c[0], "x := %s(fr[in.a])\nfr[in.d] = uint64(%s)", unsigned, width(c[1])), "0")
	}
	for i, c := range arithmetic {
		guard := ""
		if strings.HasPrefix(c[0], "Div") || strings.HasPrefix(c[0], "Rem") {
			guard = "if y == 0 {\nerr = trapDivide\ngoto trapped\n}\n"
		}
		if c[0] == "DivS" {
			guard += fmt.Sprintf("if x == 1<<%d && y == math.MaxUint%d {\nerr = trapOverflow\ngoto trapped\n}\n", bits-1, bits)
		}
		name, result := "op"+prefix+c[0], width(c[1])
		instruction(compute+i, letter+letter+":"+letter,
			operation(name, "%s\n%sfr[in.d] = uint64(%s)", slots, guard, result),
			operation(name+"Const", "%s\n%sfr[in.d] = uint64(%s)", constant, guard, result))
	}
}

func floats(bits int, prefix string, compare, compute int) {
	letter := map[int]string{32: "f", 64: "F"}[bits]
	float := func(slot string) string { return fmt.Sprintf("math.Float%dfrombits(uint%d(%s))", bits, bits, slot) }
	raw := func(x string) string { return fmt.Sprintf("uint64(math.Float%dbits(%s))", bits, x) }
	operands := "x, y := " + float("fr[in.a]") + ", " + float("fr[in.b]")
	for i, c := range floatComparisons {
		instruction(compare+i, letter+letter+":i", decides("op"+prefix+c[0], operands, operands, c[1]), "0")
	}
	sign := fmt.Sprintf("uint64(1<<%d)", bits-1)
	instruction(compute, letter+":"+letter, operation("op"+prefix+"Abs", "fr[in.d] = fr[in.a] &^ %s", sign), "0")
	instruction(compute+1, letter+":"+letter, operation("op"+prefix+"Neg", "fr[in.d] = fr[in.a] ^ %s", sign), "0")
	for i, c := range floatUnary {
		result := fmt.Sprintf("float%d(%s(float64(%s)))", bits, c[1], float("fr[in.a]"))
		instruction(compute+2+i, letter+":"+letter, operation("op"+prefix+c[0], "fr[in.d] = %s", raw(result)), "0")
	}
	for i, c := range floatBinary {
		instruction(compute+7+i, letter+letter+":"+letter, operation("op"+prefix+c[0], "%s\nfr[in.d] = %s", operands, raw(c[1])), "0")
	}
	copysign := operation("op"+prefix+"Copysign", "fr[in.d] = fr[in.a]&^%[1]s | fr[in.b]&%[1]s", sign)
	instruction(compute+13, letter+letter+":"+letter, copysign, "0")
}

// truncations adds the conversions of floats to integers: those that trap from opcode 0xa8 and 0xae, and those
// that saturate from 0xfc00, which the table has from 0xe0. The bounds are floats of both widths.
func truncations() {
	for i := range 8 {
		from, to, signed := 32<<(i>>1&1), 32<<(i>>2), i&1 == 0
		operand := map[int]string{32: "float64(math.Float32frombits(uint32(fr[in.a])))", 64: "math.Float64frombits(fr[in.a])"}[from]
		least, most, low, high := "-1", fmt.Sprintf("1<<%d", to), "0", fmt.Sprintf("math.MaxUint%d", to)
		result := fmt.Sprintf("uint64(uint%d(x))", to)
		if signed {
			least, most, low, high = fmt.Sprintf("-1<<%d", to-1), fmt.Sprintf("1<<%d", to-1), fmt.Sprintf("1<<%d", to-1), fmt.Sprintf("math.MaxInt%d", to)
			result = fmt.Sprintf("uint64(uint%d(int%d(x)))", to, to)
		}
		below := "x < " + least
		if !signed {
			below = "x <= " + least // the bound itself is not a value
		}
		signature := map[int]string{32: "f", 64: "F"}[from] + ":" + map[int]string{32: "i", 64: "I"}[to]
		name := fmt.Sprintf("I%dTruncF%d%s", to, from, map[bool]string{true: "S", false: "U"}[signed])
		head := "x := math.Trunc(" + operand + ")\n"
		instruction([]int{0xa8, 0xae}[i>>2]+i&3, signature, operation("op"+name,
			head+"if x != x {\nerr = trapConversion\ngoto trapped\n}\nif %s || x >= %s {\nerr = trapOverflow\ngoto trapped\n}\nfr[in.d] = %s", below, most, result), "0")
		instruction(0xe0+i, signature, operation("op"+name+"Sat",
			head+"switch {\ncase x != x:\nfr[in.d] = 0\ncase %s:\nfr[in.d] = %s\ncase x >= %s:\nfr[in.d] = %s\ndefault:\nfr[in.d] = %s\n}", below, low, most, high, result), "0")
	}
}

func memory() {
	place := "ea := uint64(uint32(fr[in.a])) + in.imm\nif ea+%[1]s > uint64(len(mem)) {\ngoto outside\n}\nb := mem[ea : ea+%[1]s]\n"
	for _, l := range loads {
		f := strings.SplitN(l[1], " ", 4)
		op := operation("op"+l[0], place+"fr[in.d] = %[2]s", f[2], f[3])
		instruction(number(f[0]), "i:"+f[1], op, "0")
	}
	for _, s := range stores {
		f := strings.SplitN(s[1], " ", 4)
		op := operation("op"+s[0], place+"v := fr[in.b]\n%[2]s\nif barrier[ea>>pageBits]|barrier[(ea+%[1]s-1)>>pageBits] != 0 && m.written(ea, %[1]s) {\ngoto paused\n}", f[2], f[3])
		instruction(number(f[0]), "i"+f[1]+":", op, "0")
	}
}

func number(hex string) (n int) {
	fmt.Sscanf(hex, "%x", &n)
	return n
}

// others adds the operations that have no row in a table.
func others() {
	for _, o := range [][2]string{
		{"opConst", "fr[in.d] = in.imm"},
		{"opMove", "fr[in.d] = fr[in.a]"},
		{"opJump", "pc = int(in.imm >> 32)"},
		{"opBrIf", "if uint32(fr[in.a]) != 0 {\npc = int(in.imm >> 32)\n}"},
		{"opBrIfNot", "if uint32(fr[in.a]) == 0 {\npc = int(in.imm >> 32)\n}"},
		{"opBrTable", "t := f.tables[in.imm]\npc = int(t[min(uint32(fr[in.a]), uint32(len(t)-1))])"},
		{"opReturn", "goto returns"},
		{"opReturnSlot", "fr[0] = fr[in.a]\ngoto returns"},
		{"opReturnConst", "fr[0] = in.imm\ngoto returns"},
		{"opUnreachable", "err = trapUnreachable\ngoto trapped"},
		{"opSelect", "if uint32(fr[uint16(in.imm)]) != 0 {\nfr[in.d] = fr[in.a]\n} else {\nfr[in.d] = fr[in.b]\n}"},
		{"opGlobalGet", "fr[in.d] = globals[in.imm]"},
		{"opGlobalSet", "globals[in.imm] = fr[in.a]"},
		{"opGlobalAdd32", "globals[in.a] = uint64(uint32(globals[in.a]) + uint32(in.imm))"},
		{"opFuelSet", "globals[in.imm] = fr[in.a]\nif fr[in.a] >= m.fuelStop {\nm.reason = Fuel\ngoto paused\n}"},
		{"opFuelAdd", "fuel := globals[in.a] + in.imm\nglobals[in.a] = fuel\nif fuel >= m.fuelStop {\nm.reason = Fuel\ngoto paused\n}"},
		{"opBrIfAtMostGlobal", "if fr[in.a] <= globals[in.b] {\npc = int(in.imm >> 32)\n}"},
		{"opMemorySize", "fr[in.d] = uint64(len(mem) / wasm.PageSize)"},
		{"opMemoryGrow", "before, ok := m.Grow(uint32(fr[in.a]))\nfr[in.d] = uint64(before)\nif !ok {\nfr[in.d] = math.MaxUint32\n}\nmem, barrier = m.mem, m.barrier"},
		{"opMemoryCopy", "to, from, n := uint64(uint32(fr[in.d])), uint64(uint32(fr[in.a])), uint64(uint32(fr[in.b]))\n" +
			"if to+n > uint64(len(mem)) || from+n > uint64(len(mem)) {\ngoto outside\n}\ncopy(mem[to:to+n], mem[from:from+n])\nif m.written(to, n) {\ngoto paused\n}"},
		{"opMemoryFill", "to, v, n := uint64(uint32(fr[in.d])), byte(fr[in.a]), uint64(uint32(fr[in.b]))\n" +
			"if to+n > uint64(len(mem)) {\ngoto outside\n}\nb := mem[to : to+n]\nfor i := range b {\nb[i] = v\n}\nif m.written(to, n) {\ngoto paused\n}"},
		{"opCall", "callee, base = m.funcs[in.imm], int(in.d)\ngoto call"},
		{"opCallIndirect", "i := uint32(fr[in.a])\nif uint64(i) >= uint64(len(m.code.table)) || m.code.table[i] < 0 {\nerr = trapTable\ngoto trapped\n}\n" +
			"callee, base = m.funcs[m.code.table[i]], int(in.d)\nif uint64(callee.typ) != in.imm {\nerr = trapType\ngoto trapped\n}\ngoto call"},
		{"opCount", "m.counts[in.imm]++"},
		{"opBreak", "pc--\nbudget++\nm.reason = Offset\ngoto paused"},
	} {
		operation(o[0], "%s", o[1])
	}
}

const frame = `// Code generated by generate.go; DO NOT EDIT.

package machine

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/starling-host/starling/host/internal/wasm"
)

// The operations. Those with Const in the name have a constant as the last operand.
const (
	opNone uint16 = iota
%s	opCount_
)

// plain has the instructions that only compute, load or store, by opcode.
var plain = [256]struct {
	signature       string
	slots, constant uint16
}{
%s}

// fused has, for an operation that decides, those that branch if it is false, or true.
var fused = [opCount_][2]uint16{
%s}

var le = binary.LittleEndian

func f32(x float32) uint64 { return uint64(math.Float32bits(x)) }

// run executes at most budget instructions from where the machine stands. It reports whether the
// export has returned. A frame is an array of all slots that an instruction can name, so that no
// access is checked; enter keeps that many slots behind the frame.
func (m *Machine) run(budget uint64) (done bool, err error) {
	start := budget
	f, pc, fp := m.funcs[m.fn], m.pc, m.fp
	code, fr := f.code, (*[maxSlots]uint64)(m.stack[fp:])
	mem, barrier, globals := m.mem, m.barrier, m.globals
	var in *operation
	var callee *function
	var base int
	for {
		if budget == 0 {
			goto paused
		}
		budget--
		in = &code[pc]
		pc++
		switch in.op {
%s		default:
			panic("machine: unknown operation")
		}
		continue
	call:
		fp += base
		if callee.host >= 0 { // which sees the state before the call, and leaves it there if it panics
			m.fn, m.pc, m.fp = f.index, pc-1, fp-base
			m.at += start - budget - 1
			start = budget + 1
			m.answer(callee, m.stack[fp:fp+callee.size])
			fp -= base
			if m.reason != 0 {
				goto paused
			}
			continue
		}
		if fp+callee.size > len(m.stack)-maxSlots && !m.enlarge(fp+callee.size) {
			fp -= base
			err = ErrStack
			goto trapped
		}
		m.frames = append(m.frames, place{f.index, pc, fp - base})
		f, code, pc = callee, callee.code, 0
		fr = (*[maxSlots]uint64)(m.stack[fp:])
		clear(fr[f.params:f.locals])
		if len(m.frames) == m.above {
			m.reason = Entered
			goto paused
		}
		continue
	returns:
		if n := len(m.frames) - 1; n >= 0 {
			top := m.frames[n]
			m.frames = m.frames[:n]
			f, pc, fp = m.funcs[top.fn], top.pc, top.fp
			code, fr = f.code, (*[maxSlots]uint64)(m.stack[fp:])
			if n < m.below {
				m.reason = Returned
				goto paused
			}
			continue
		}
		done = true
		goto ended
	outside:
		err = trapMemory
	trapped:
	ended: // the instruction that ends the call does not count
		pc--
		budget++
	paused:
		m.fn, m.pc, m.fp = f.index, pc, fp
		m.at += start - budget
		return done, err
	}
}
`

func main() {
	log.SetFlags(0)
	others()
	integers(32, "I32", 0x45, 0x67, 0x6a)
	integers(64, "I64", 0x50, 0x79, 0x7c)
	floats(32, "F32", 0x5b, 0x8b)
	floats(64, "F64", 0x61, 0x99)
	for _, c := range conversions {
		f := strings.SplitN(c[1], " ", 3)
		instruction(number(f[0]), f[1], operation("op"+c[0], "v := fr[in.a]\nfr[in.d] = %s", f[2]), "0")
	}
	truncations()
	memory()
	source, err := format.Source(fmt.Appendf(nil, frame, &names, &plain, &fused, &cases))
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(append(os.Args[1:], "dispatch.go")...), source, 0o644); err != nil {
		log.Fatal(err)
	}
}
