package rewrite

import (
	"context"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"pgregory.net/rapid"
)

// TestFuelIsExact writes random programs of structured control flow, executes
// them with a small interpreter that adds up the price of each instruction as
// it executes it, and compares with the counter of the metered module. The two
// have nothing in common but the cost table: the interpreter knows no blocks.
func TestFuelIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		arg := rapid.Int32Range(0, 9).Draw(t, "arg")
		ref := reference{p: p, left: 20_000}
		ref.call(0, arg)
		if ref.left <= 0 {
			t.Skip("the program does not end soon")
		}
		m := wasmtest.Module{}
		for i, f := range p {
			export := ""
			if i == 0 {
				export = "run"
			}
			m.Funcs = append(m.Funcs, wasmtest.Func{Export: export, Type: wasmtest.Type("i:"), Code: f.assemble()})
		}
		res, err := Rewrite(work.Trusted(context.Background()), m.Bytes(), DefaultLimits(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for engine := range engines {
			if got := fuelOf(t, engine, res, arg); got != ref.fuel {
				t.Fatalf("%s: fuel %d, counted one by one %d", engine, got, ref.fuel)
			}
		}
	})
}

// stmt is a statement. Its local is the function's parameter, and labels are
// WebAssembly's.
type stmt struct {
	kind   string // dec, set, drop, block, loop, if, br, br_if, br_table, return, call
	n      int32  // set: the value; call: the function
	labels []uint32
	body   []stmt
	orElse []stmt // of an if
	hasEls bool
}

type function []stmt

// drawProgram draws three functions. Each calls only later ones, so that only
// loops can run for ever.
func drawProgram(t *rapid.T) []function {
	var p []function
	for i := range 3 {
		p = append(p, drawBody(t, i, 0))
	}
	return p
}

func drawBody(t *rapid.T, index, depth int) []stmt {
	var body []stmt
	for range rapid.IntRange(0, 5).Draw(t, "statements") {
		body = append(body, drawStmt(t, index, depth))
	}
	return body
}

func drawStmt(t *rapid.T, index, depth int) stmt {
	kinds := []string{"dec", "dec", "set", "drop", "br", "br_if", "br_if", "br_table", "return"}
	if index < 2 {
		kinds = append(kinds, "call")
	}
	if depth < 4 {
		kinds = append(kinds, "block", "block", "loop", "loop", "if", "if")
	}
	s := stmt{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	label := rapid.Uint32Range(0, uint32(depth))
	switch s.kind {
	case "set":
		s.n = rapid.Int32Range(0, 5).Draw(t, "value")
	case "call":
		s.n = rapid.Int32Range(int32(index)+1, 2).Draw(t, "callee")
	case "br", "br_if":
		s.labels = []uint32{label.Draw(t, "label")}
	case "br_table":
		s.labels = rapid.SliceOfN(label, 1, 4).Draw(t, "labels")
	case "block", "loop":
		s.body = drawBody(t, index, depth+1)
	case "if":
		s.body = drawBody(t, index, depth+1)
		if s.hasEls = rapid.Bool().Draw(t, "else"); s.hasEls {
			s.orElse = drawBody(t, index, depth+1)
		}
	}
	return s
}

func (f function) assemble() *wasm.Asm {
	a := code()
	assemble(a, f)
	return a
}

func assemble(a *wasm.Asm, body []stmt) {
	for _, s := range body {
		switch s.kind {
		case "dec":
			a.Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpLocalSet, 0)
		case "set":
			a.I32(s.n).Index(wasm.OpLocalSet, 0)
		case "drop":
			a.I32(7).I32(7).Op(wasm.OpI32DivS, wasm.OpNop, wasm.OpDrop)
		case "call":
			a.Index(wasm.OpLocalGet, 0).Index(wasm.OpCall, uint32(s.n))
		case "br":
			a.Index(wasm.OpBr, s.labels[0])
		case "br_if":
			a.Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, s.labels[0])
		case "br_table":
			a.Index(wasm.OpLocalGet, 0).BrTable(s.labels...)
		case "return":
			a.Op(wasm.OpReturn)
		case "block", "loop", "if":
			op := map[string]wasm.Op{"block": wasm.OpBlock, "loop": wasm.OpLoop, "if": wasm.OpIf}[s.kind]
			if s.kind == "if" {
				a.Index(wasm.OpLocalGet, 0)
			}
			a.Block(op, wasm.BlockEmpty)
			assemble(a, s.body)
			if s.hasEls {
				a.Op(wasm.OpElse)
				assemble(a, s.orElse)
			}
			a.Op(wasm.OpEnd)
		}
	}
}

// reference executes statements and pays for each instruction when it gets
// there.
type reference struct {
	p    []function
	fuel uint64
	left int // statements until it gives up
}

// goesOn is the result of executing a body that no branch leaves. Otherwise
// it is the number of blocks that the branch still has to leave.
const goesOn = -1

func (r *reference) call(index, arg int32) {
	r.fuel++ // entry
	r.run(r.p[index], &arg)
}

func (r *reference) run(body []stmt, local *int32) int {
	for i := range body {
		if r.left--; r.left <= 0 {
			return 1 << 20
		}
		if out := r.step(&body[i], local); out != goesOn {
			return out
		}
	}
	return goesOn
}

func (r *reference) step(s *stmt, local *int32) int {
	switch s.kind {
	case "dec":
		r.fuel += 4
		*local--
	case "set":
		r.fuel += 2
		*local = s.n
	case "drop":
		r.fuel += 2 + 10 + 1
	case "call":
		r.fuel += 1 + 5
		r.call(s.n, *local)
	case "br":
		r.fuel++
		return int(s.labels[0])
	case "br_if":
		r.fuel += 2
		if *local != 0 {
			return int(s.labels[0])
		}
	case "br_table":
		r.fuel += 2
		return int(s.labels[min(uint32(*local), uint32(len(s.labels)-1))])
	case "return":
		r.fuel++
		return 1 << 20
	default:
		return r.block(s, local)
	}
	return goesOn
}

func (r *reference) block(s *stmt, local *int32) int {
	body := s.body
	if s.kind == "if" {
		r.fuel += 2
		if *local == 0 {
			body = s.orElse
		}
	}
	for {
		if s.kind == "loop" {
			r.fuel++
		}
		out := r.run(body, local)
		switch {
		case out == 0 && s.kind == "loop" && r.left > 0:
			continue
		case out <= 0:
			return goesOn
		}
		return out - 1
	}
}
