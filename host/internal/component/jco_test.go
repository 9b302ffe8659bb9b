package component

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/treetest"
)

// TestRandomTypes makes components whose types are random. A function returns the value that it is
// given, or the core values that the value is passed as. The same calls on jco and Node return the
// same. With STARLING_NIGHTLY, 30,000 calls of 60 components.
func TestRandomTypes(t *testing.T) {
	node := needJco(t)
	components, calls := 1, 8
	if os.Getenv("STARLING_NIGHTLY") != "" {
		components, calls = 60, 20
	}
	dir := t.TempDir()
	for seed := range components {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		name := filepath.Join(dir, fmt.Sprint("types", seed))
		wit, wat := randomTypes(r, 25)
		for ext, text := range map[string]string{".wit": wit, ".wat": wat} {
			if err := os.WriteFile(name+ext, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(node, "jco.mjs", name)
		cmd.Dir = "testdata"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, wit)
		}
		if ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { compareWithJco(t, node, r, name+".wasm", nil, calls) }); !ok {
			t.Fatalf("with these types: %s", wit)
		}
	}
}

// typeMaker writes random types: declarations of WIT, and of each type the core values that it is
// passed as.
type typeMaker struct {
	*rand.Rand
	declarations []string
}

// declare adds a named type and returns its name.
func (m *typeMaker) declare(format string, items []string) string {
	name := fmt.Sprint("t", len(m.declarations))
	m.declarations = append(m.declarations, fmt.Sprintf(format, name, strings.Join(items, ", ")))
	return name
}

// next returns a type in WIT and the core values of it: i, I, f and F are i32, i64, f32 and f64.
// Only types with plain have no addresses in their core values.
func (m *typeMaker) next(depth int, plain bool) (text, flat string) {
	if depth == 0 || m.IntN(6) == 0 {
		leaves := [][2]string{{"bool", "i"}, {"s8", "i"}, {"u8", "i"}, {"s16", "i"}, {"u16", "i"}, {"s32", "i"}, {"u32", "i"}, {"s64", "I"}, {"u64", "I"}, {"f32", "f"}, {"f64", "F"}, {"char", "i"}, {"string", "ii"}}
		if plain {
			leaves = leaves[:len(leaves)-1]
		}
		leaf := leaves[m.IntN(len(leaves))]
		return leaf[0], leaf[1]
	}
	inner := func() (string, string) { return m.next(depth-1, plain) }
	labels := func(most int) (list []string) {
		for i := range 1 + m.IntN(most) {
			list = append(list, fmt.Sprintf("%c%d-of", 'a'+m.IntN(26), i))
		}
		return list
	}
	switch m.IntN(8) {
	case 0:
		if !plain {
			text, _ = inner()
			return "list<" + text + ">", "ii"
		}
		fallthrough
	case 1:
		fields := labels(4)
		for i := range fields {
			text, f := inner()
			fields[i] += ": " + text
			flat += f
		}
		return m.declare("record %s { %s }", fields), flat
	case 2:
		var items []string
		for range 1 + m.IntN(3) {
			text, f := inner()
			items, flat = append(items, text), flat+f
		}
		return "tuple<" + strings.Join(items, ", ") + ">", flat
	case 3:
		cases := labels(5)
		if m.IntN(8) == 0 {
			cases = labels(300) // a discriminant of two bytes
		}
		for i := range min(len(cases), 6) {
			if m.IntN(4) > 0 {
				text, f := inner()
				cases[i] += "(" + text + ")"
				flat = joinFlat(flat, f)
			}
		}
		return m.declare("variant %s { %s }", cases), "i" + flat
	case 4:
		return m.declare("enum %s { %s }", labels(300)), "i"
	case 5:
		return m.declare("flags %s { %s }", labels(32)), "i"
	case 6:
		text, flat = inner()
		return "option<" + text + ">", "i" + flat
	}
	ok, a := inner()
	err, b := inner()
	switch m.IntN(4) {
	case 0:
		return "result<_, " + err + ">", "i" + b
	case 1:
		return "result<" + ok + ">", "i" + a
	}
	return "result<" + ok + ", " + err + ">", "i" + joinFlat(a, b)
}

// joinFlat returns core values that hold either of two lists of them. Where i32 or f32 stands in an
// i64, jco extends the sign, and the canonical ABI zero: l is an i64 of which the lower half counts.
func joinFlat(a, b string) string {
	out := []byte(a)
	for i := range len(b) {
		if i >= len(a) {
			out = append(out, b[i])
		} else if a[i] != b[i] {
			pair := string([]byte{a[i], b[i]})
			out[i] = 'I'
			if strings.Trim(pair, "if") == "" {
				out[i] = 'i'
			} else if strings.ContainsAny(pair, "ifl") {
				out[i] = 'l'
			}
		}
	}
	return string(out)
}

// randomTypes returns the interface of a component and its core module.
func randomTypes(r *rand.Rand, functions int) (wit, wat string) {
	m := &typeMaker{Rand: r}
	var signatures, code strings.Builder
	for i := range functions {
		if i%2 == 0 { // more than 16 core values: the value is at an address, and so is the result
			text, _ := m.next(4, false)
			fmt.Fprintf(&signatures, "  f%d: func(v: tuple<%s, pad>) -> tuple<%[2]s, pad>;\n", i, text)
			fmt.Fprintf(&code, "  (func (export \"test:values/api#f%d\") (param i32) (result i32) local.get 0)\n", i)
			fmt.Fprintf(&code, "  (func (export \"cabi_post_test:values/api#f%d\") (param i32) (global.set $at (i32.const 1024)))\n", i)
			continue
		}
		text, flat := m.next(3, true)
		for len(flat) < 2 || len(flat) > 16 {
			text, flat = m.next(3, true)
		}
		fmt.Fprintf(&signatures, "  f%d: func(v: %s) -> tuple<%s>;\n", i, text, strings.TrimSuffix(strings.Repeat("u64, ", len(flat)), ", "))
		fmt.Fprintf(&code, "  (func (export \"test:values/api#f%d\") (param", i)
		for _, f := range flat {
			code.WriteString(map[rune]string{'i': " i32", 'I': " i64", 'l': " i64", 'f': " f32", 'F': " f64"}[f])
		}
		fmt.Fprintf(&code, ") (result i32) (local $p i32) (local.set $p (call $realloc (i32.const 0) (i32.const 0) (i32.const 8) (i32.const %[1]d)))\n    (memory.fill (local.get $p) (i32.const 0) (i32.const %[1]d))\n", 8*len(flat))
		for at, f := range flat {
			store := map[rune]string{'i': "i64.store offset=%d (local.get $p) (i64.extend_i32_u (local.get %d))", 'l': "i64.store32 offset=%d (local.get $p) (local.get %d)", 'f': "f32.store offset=%d (local.get $p) (local.get %d)", 'I': "i64.store offset=%d (local.get $p) (local.get %d)", 'F': "f64.store offset=%d (local.get $p) (local.get %d)"}[f]
			fmt.Fprintf(&code, "    ("+store+")\n", 8*at, at)
		}
		code.WriteString("    (local.get $p))\n")
		fmt.Fprintf(&code, "  (func (export \"cabi_post_test:values/api#f%d\") (param i32) (global.set $at (i32.const 1024)))\n", i)
	}
	wit = "package test:values;\n\ninterface api {\n  type pad = tuple<u8" + strings.Repeat(", u8", 16) + ">;\n  " + strings.Join(m.declarations, "\n  ") + "\n" + signatures.String() + "}\n\nworld values {\n  export api;\n}\n"
	return wit, `(module
  (memory (export "memory") 4 1000)
  (global $at (mut i32) (i32.const 1024))
  (func $realloc (export "cabi_realloc") (param $old i32) (param $had i32) (param $align i32) (param $n i32) (result i32) (local $p i32)
    (local.set $p (i32.and (i32.sub (i32.add (global.get $at) (local.get $align)) (i32.const 1)) (i32.sub (i32.const 0) (local.get $align))))
    (global.set $at (i32.add (local.get $p) (local.get $n)))
    (if (i32.gt_u (global.get $at) (i32.shl (memory.size) (i32.const 16)))
      (then (drop (memory.grow (i32.add (i32.shr_u (local.get $n) (i32.const 16)) (i32.const 1))))))
    (memory.copy (local.get $p) (local.get $old) (local.get $had))
    (local.get $p))
` + code.String() + ")\n"
}

// needJco skips the test where jco or Node is missing, and returns the path of Node.
func needJco(t *testing.T) string {
	treetest.NeedsNPM(t, "testdata")
	return "node"
}

// TestSameAsJco calls the tools of values.wasm with random values, and jco on Node with the same.
func TestSameAsJco(t *testing.T) {
	compareWithJco(t, needJco(t), rand.New(rand.NewPCG(3, 4)), "testdata/values.wasm", []string{"every-one", "shapes", "numbers", "either", "access-of", "double", "upper"}, 40)
}

// compareWithJco calls functions (nil: all) of the interface test:values/api with random values,
// here and with jco on Node, and compares the results.
func compareWithJco(t *testing.T, node string, r *rand.Rand, component string, functions []string, calls int) {
	t.Helper()
	b, err := os.ReadFile(component)
	if err != nil {
		t.Fatal(err)
	}
	l := loadBytes(t, b)
	exports := (&reading{budget: budget(t, b), buf: b}).component(&section{pos: 8, end: len(b)}, nil, -1, 0)
	api := exports.items["test:values/api"].v.(*instance)
	type call struct {
		Function string         `json:"function"`
		Params   []any          `json:"params"` // types
		Args     []any          `json:"args"`
		Result   map[string]any `json:"result"`
	}
	var all []call
	var ours []string
	if functions == nil {
		for _, name := range api.names {
			if _, ok := api.items[name].v.(*function); ok {
				functions = append(functions, name)
			}
		}
	}
	for _, name := range functions {
		f := api.items[name].v.(*function)
		for range calls {
			c := call{Function: name, Result: shape(f.t.result)}
			input := map[string]any{}
			for _, p := range f.t.params.items {
				v := random(r, p.t)
				c.Params, c.Args, input[p.name] = append(c.Params, shape(p.t)), append(c.Args, v), jsonOf(p.t, v)
			}
			all = append(all, c)
			doc, err := json.Marshal(input)
			if err != nil {
				t.Fatal(err)
			}
			ours = append(ours, l.call(name, string(doc)))
		}
	}
	doc, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "calls.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(component)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "jco.mjs", path, file)
	cmd.Dir, cmd.Stderr = "testdata", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(theirs) != len(ours) {
		t.Fatalf("%d results and not %d", len(theirs), len(ours))
	}
	for i := range ours {
		exact := all[i].Function == "double"
		if a, b := normalized(t, ours[i], exact), normalized(t, theirs[i], exact); a != b {
			t.Fatalf("%s(%v)\n returned %s\n and by jco %s", all[i].Function, all[i].Args, a, b)
		}
	}
	t.Logf("%d calls of %d functions", len(ours), len(ours)/calls)
}

// normalized is a document whose keys are sorted and whose numbers are written in one way.
func normalized(t *testing.T, doc string, exact bool) string {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case json.Number:
			n, ok := new(big.Rat).SetString(v.String())
			if !ok {
				t.Fatalf("%s is not a number", v)
			}
			if f, _ := n.Float32(); !n.IsInt() && !exact && f != 0 && !math.IsInf(float64(f), 0) {
				n.SetFloat64(float64(f)) // two texts of an f32 can be equally short
			}
			return n.RatString()
		}
		return v
	}
	b, err := json.Marshal(walk(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shape describes a type to jco.mjs.
func shape(t *valueType) map[string]any {
	if t == nil {
		return nil
	}
	var items []any
	for _, f := range t.items {
		items = append(items, map[string]any{"name": f.name, "type": shape(f.t)})
	}
	return map[string]any{"kind": int(t.kind), "items": items, "elem": shape(t.elem)}
}

// random returns a value of a type as jco.mjs reads it: numbers are strings, and a variant, option
// or result is the list of the index of its case and the payload.
func random(r *rand.Rand, t *valueType) any {
	texts := []string{"", "a", "\"\\/", "\n\t\x01\x7f", "é", "€", "😀", "\u2028", "zwölf"}
	sized := map[kind]uint{kindU8: 8, kindU16: 16, kindU32: 32, kindU64: 64, kindS8: 8, kindS16: 16, kindS32: 32, kindS64: 64}
	anyChar := func() string {
		c := rune(r.IntN(0x110000-0x800)) >> (r.UintN(2) * r.UintN(21))
		if c >= 0xd800 {
			c += 0x800
		}
		return string(c)
	}
	switch t.kind {
	case kindBool:
		return r.IntN(2) == 1
	case kindU8, kindU16, kindU32, kindU64:
		if r.IntN(8) == 0 {
			return strconv.FormatUint(math.MaxUint64>>(64-sized[t.kind]), 10)
		}
		return strconv.FormatUint(r.Uint64()>>(64-sized[t.kind])>>(r.UintN(2)*r.UintN(sized[t.kind])), 10)
	case kindS8, kindS16, kindS32, kindS64:
		if r.IntN(8) == 0 {
			return strconv.FormatInt(math.MinInt64>>(64-sized[t.kind]), 10)
		}
		return strconv.FormatInt(int64(r.Uint64())>>(64-sized[t.kind])>>(r.UintN(2)*r.UintN(sized[t.kind])), 10)
	case kindF32:
		return floatText(float64(math.Float32frombits(r.Uint32())), 32)
	case kindF64:
		v := math.Float64frombits(r.Uint64())
		if r.IntN(3) == 0 {
			v = float64(r.IntN(1000)) / 8
		}
		return floatText(v, 64)
	case kindChar:
		return anyChar()
	case kindString:
		return texts[r.IntN(len(texts))] + anyChar() + texts[r.IntN(len(texts))]
	case kindList:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, random(r, t.elem))
		}
		return list
	case kindRecord, kindTuple:
		list := []any{}
		for _, f := range t.items {
			list = append(list, random(r, f.t))
		}
		return list
	case kindFlags:
		list := []any{}
		for range t.items {
			list = append(list, r.IntN(2) == 1)
		}
		return list
	case kindOption:
		if r.IntN(2) == 0 {
			return []any{0}
		}
		v := random(r, t.elem)
		if t.elem.kind == kindOption && len(v.([]any)) == 1 {
			return []any{0} // JSON cannot say some(none)
		}
		return []any{1, v}
	}
	i := r.IntN(len(t.items))
	if t.items[i].t == nil {
		return []any{i}
	}
	return []any{i, random(r, t.items[i].t)}
}

func floatText(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(v, 'g', -1, bits)
}

// jsonOf is a random value as the input of a tool has it.
func jsonOf(t *valueType, v any) any {
	list, _ := v.([]any)
	object := map[string]any{}
	switch t.kind {
	case kindBool, kindChar, kindString:
		return v
	case kindF32, kindF64:
		if s := v.(string); strings.ContainsAny(s, "Nn") {
			return s
		}
		return json.Number(v.(string))
	case kindList:
		out := []any{}
		for _, e := range list {
			out = append(out, jsonOf(t.elem, e))
		}
		return out
	case kindTuple:
		out := []any{}
		for i, e := range list {
			out = append(out, jsonOf(t.items[i].t, e))
		}
		return out
	case kindRecord:
		for i, e := range list {
			if e := jsonOf(t.items[i].t, e); i%2 == 0 || t.items[i].t.kind != kindOption || e != nil {
				object[t.items[i].name] = e // a missing option is none
			}
		}
		return object
	case kindFlags:
		for i, e := range list {
			if i%2 == 0 || e == true {
				object[t.items[i].name] = e // a missing flag is false
			}
		}
		return object
	case kindOption:
		if len(list) == 1 {
			return nil
		}
		return jsonOf(t.elem, list[1])
	case kindEnum, kindVariant, kindResult:
		c := t.items[list[0].(int)]
		if t.kind == kindEnum {
			return c.name
		}
		var payload any
		if c.t != nil {
			payload = jsonOf(c.t, list[1])
		}
		if t.kind == kindResult {
			return map[string]any{c.name: payload}
		}
		object["tag"] = c.name
		if c.t != nil {
			object["val"] = payload
		}
		return object
	}
	return json.Number(v.(string))
}
