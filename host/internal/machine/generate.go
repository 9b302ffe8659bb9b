//go:build ignore

// This program writes dispatch.go, from dispatch.tmpl and the table instructions.txt: the operations of
// the machine, the tables by which a body is translated to them, and the loop that executes them. An
// argument is the folder to write to.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

var out struct{ Names, Plain, Fused, Cases bytes.Buffer }

// operation adds an operation and the code that executes it.
func operation(name, code string) {
	fmt.Fprintf(&out.Names, "\t%s\n", name)
	fmt.Fprintf(&out.Cases, "case %s:\n%s\n", name, code)
}

// operand returns how an operand of a type is read from where it stands, and result how the result of
// an expression of a type becomes the bits of a slot.
func operand(letter byte, place string) string {
	return fmt.Sprintf(map[byte]string{'i': "uint32(%s)", 'I': "%s", 'f': "math.Float32frombits(uint32(%s))", 'F': "math.Float64frombits(%s)"}[letter], place)
}

func result(letter byte, expression string) string {
	return fmt.Sprintf(map[byte]string{'i': "uint64(%s)", 'I': "uint64(%s)", 'f': "uint64(math.Float32bits(%s))", 'F': "math.Float64bits(%s)"}[letter], expression)
}

// instruction adds the operations of a row of the table.
func instruction(row string) {
	name, row, _ := strings.Cut(row, " ")
	code, row, _ := strings.Cut(strings.TrimSpace(row), " ")
	signature, body, _ := strings.Cut(row, " ")
	params, to, _ := strings.Cut(signature, ":")
	name, body = "op"+name, strings.TrimSpace(body)
	constant := "opNone"
	if what := strings.SplitN(body, " ", 3); what[0] == "load" || what[0] == "store" {
		text := fmt.Sprintf("ea := uint64(uint32(fr[in.a])) + in.imm\nif ea+%[1]s > uint64(len(mem)) {\ngoto outside\n}\nb := mem[ea : ea+%[1]s]\n", what[1])
		if what[0] == "load" {
			text += "fr[in.d] = uint64(" + what[2] + ")"
		} else {
			text += fmt.Sprintf("v := fr[in.b]\n%[2]s\nif barrier[ea>>pageBits]|barrier[(ea+%[1]s-1)>>pageBits] != 0 && m.written(ea, %[1]s) {\ngoto paused\n}", what[1], what[2])
		}
		operation(name, text)
	} else {
		compute(name, params, to, body, "", "fr[in.b]", "fr[in.b]")
		if len(params) == 2 && strings.ToLower(params) == "ii" {
			constant = name + "Const"
			compute(name, params, to, body, "Const", "in.imm", "uint64(uint32(in.imm))") // beside a target
		}
	}
	types := func(letters string) (list string) {
		for _, l := range letters {
			list += map[rune]string{'i': "wasm.I32,", 'I': "wasm.I64,", 'f': "wasm.F32,", 'F': "wasm.F64,", '?': "wasm.I32,"}[l]
		}
		return list
	}
	fmt.Fprintf(&out.Plain, "\t0x%s: {[]wasm.ValType{%s}, []wasm.ValType{%s}, %s, %s},\n", code, types(params), types(to), name, constant)
}

// compute adds the operation that computes, with its second operand in a place; and if it decides, those that
// branch, with theirs in another.
func compute(name, params, to, body, suffix, second, beside string) {
	operands := func(second string) string {
		if len(params) == 1 {
			return "x := " + operand(params[0], "fr[in.a]") + "\n"
		}
		return "x, y := " + operand(params[0], "fr[in.a]") + ", " + operand(params[1], second) + "\n"
	}
	name += suffix
	if to == "?" {
		operation(name, operands(second)+"if "+body+" {\nfr[in.d] = 1\n} else {\nfr[in.d] = 0\n}")
		operation(name+"BrIfNot", operands(beside)+"if !("+body+") {\npc = int(in.imm >> 32)\n}")
		operation(name+"BrIf", operands(beside)+"if "+body+" {\npc = int(in.imm >> 32)\n}")
		fmt.Fprintf(&out.Fused, "\t%[1]s: {%[1]sBrIfNot, %[1]sBrIf},\n", name)
		return
	}
	if bits, ok := strings.CutPrefix(body, "= "); ok {
		operation(name, "fr[in.d] = "+bits)
		return
	}
	text := operands(second)
	parts := strings.Split(body, "; ")
	for _, guard := range parts[:len(parts)-1] {
		condition, trap, _ := strings.Cut(guard, " -> ")
		text += "if " + condition + " {\nerr = " + trap + "\ngoto trapped\n}\n"
	}
	operation(name, text+"fr[in.d] = "+result(to[0], parts[len(parts)-1]))
}

func main() {
	log.SetFlags(0)
	table, err := os.ReadFile("instructions.txt")
	if err != nil {
		log.Fatal(err)
	}
	for row := range strings.Lines(string(table)) {
		if !strings.HasPrefix(row, "#") {
			instruction(strings.TrimSpace(row))
		}
	}
	var source bytes.Buffer
	if err := template.Must(template.ParseFiles("dispatch.tmpl")).Execute(&source, &out); err != nil {
		log.Fatal(err)
	}
	formatted, err := format.Source(source.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(append(os.Args[1:], "dispatch.go")...), formatted, 0o644); err != nil {
		log.Fatal(err)
	}
}
