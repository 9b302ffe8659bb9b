package wit

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// abiSource is the end of all bindings.
//
//go:embed abi.rs
var abiSource string

// unit is an interface as a component imports or exports it. Types that an exported interface uses
// of another are those of the export, if there is one.
type unit struct {
	*Interface
	name     string // as a component has it
	exported bool
	funcs    []*Func // that can be imported or exported
}

// units returns the interfaces of a world, each after those whose types it uses. Interfaces that
// others use are imported.
func (w *World) units() []*unit {
	var all []*unit
	find := func(i *Interface, exported bool) *unit {
		for _, u := range all {
			if u.Interface == i && u.exported == exported {
				return u
			}
		}
		return nil
	}
	var add func(i *Interface, name string, exported bool)
	used := func(i *Interface, exported bool) {
		for _, d := range i.Defs {
			if d.Used != nil {
				add(d.Used.In, d.Used.In.ID, exported && w.exports(d.Used.In))
			}
		}
	}
	add = func(i *Interface, name string, exported bool) {
		if find(i, exported) != nil || odds(i) && !exported {
			return
		}
		used(i, exported)
		u := &unit{Interface: i, name: name, exported: exported, funcs: i.Funcs}
		if !exported {
			u.funcs = slices.DeleteFunc(slices.Clone(i.Funcs), func(f *Func) bool { return !importable(f) })
			if !slices.ContainsFunc(w.Imports, func(e *Extern) bool { return e.Interface == i }) { // others use its types
				u.funcs = nil
			}
		}
		all = append(all, u)
	}
	for _, e := range w.Imports {
		if e.Interface != nil {
			add(e.Interface, e.Name, false)
		}
	}
	used(&w.Interface, false)
	for _, e := range w.Exports {
		if e.Interface != nil {
			add(e.Interface, e.Name, true)
		}
	}
	return all
}

func (w *World) exports(i *Interface) bool {
	return slices.ContainsFunc(w.Exports, func(e *Extern) bool { return e.Interface == i })
}

// odds reports whether all that an interface has is not supported, such as resources.
func odds(i *Interface) bool {
	return len(i.Defs) > 0 && !slices.ContainsFunc(i.Defs, plain) && !slices.ContainsFunc(i.Funcs, importable)
}

func plain(d *Def) bool {
	what, _ := odd(d.Type, map[*Type]bool{})
	return what == ""
}

func importable(f *Func) bool {
	what, _ := odd(f.Result, map[*Type]bool{})
	for _, p := range f.Params {
		if w, _ := odd(p.Type, map[*Type]bool{}); w != "" {
			what = w
		}
	}
	return what == "" && len(f.Params) <= maxParams
}

// rustWords cannot be names in Rust; the others name what the bindings use.
const rustWords = ` Abi Guest Option Result Self String Vec abi abstract as async await become bindings box break const continue crate do dyn
	else enum exports extern false final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self
	static struct super trait true try type typeof union unsafe unsized use virtual where while yield `

func rustName(name string) string {
	if slices.Contains(strings.Fields(rustWords), name) {
		return name + "_"
	}
	return name
}

func snake(name string) string {
	return rustName(strings.ReplaceAll(strings.ToLower(name), "-", "_"))
}

func camel(name string) string {
	out := ""
	for word := range strings.SplitSeq(name, "-") {
		out += strings.ToUpper(word[:1]) + strings.ToLower(word[1:])
	}
	return rustName(out)
}

// module returns the modules of an interface below bindings.
func (u *unit) module() []string {
	id, _, _ := strings.Cut(u.name, "@")
	var out []string
	if u.exported {
		out = []string{"exports"}
	}
	for part := range strings.FieldsFuncSeq(id, func(c rune) bool { return c == ':' || c == '/' }) {
		out = append(out, snake(part))
	}
	return out
}

// rustModule returns the module of a type that an exported or an imported interface uses.
func (d *Def) rustModule(w *World, exported bool) string {
	u := &unit{name: d.In.ID, exported: exported && w.exports(d.In)}
	return strings.Join(u.module(), "::")
}

// rustType returns a type in Rust. Before a named type stands the prefix.
func rustType(t *Type, prefix string) string {
	if t == nil {
		return "()"
	}
	switch t.Kind {
	case "string":
		return "String"
	case "bool", "char", "u8", "u16", "u32", "u64", "f32", "f64":
		return t.Kind
	case "s8", "s16", "s32", "s64":
		return "i" + t.Kind[1:]
	case "list":
		return "Vec<" + rustType(t.Elem, prefix) + ">"
	case "option":
		return "Option<" + rustType(t.Elem, prefix) + ">"
	case "result":
		return "Result<" + rustType(t.Items[0].Type, prefix) + ", " + rustType(t.Items[1].Type, prefix) + ">"
	case "tuple":
		return tuple(t.Items, prefix)
	}
	return prefix + camel(t.Def.Name)
}

func tuple(items []Field, prefix string) string {
	out := "("
	for _, f := range items {
		out += rustType(f.Type, prefix) + ", "
	}
	if len(items) > 1 {
		out = strings.TrimSuffix(out, ", ")
	}
	return strings.TrimSuffix(out, " ") + ")"
}

func rustDoc(indent, doc string) (out string) {
	for line := range strings.Lines(doc) {
		out += strings.TrimRight(indent+"/// "+strings.TrimRight(line, "\n"), " ") + "\n"
	}
	return out
}

// signature returns the head of a function in Rust.
func signature(f *Func, prefix string) string {
	var params []string
	for _, p := range f.Params {
		params = append(params, snake(p.Name)+": "+rustType(p.Type, prefix))
	}
	out := "fn " + snake(f.Name) + "(" + strings.Join(params, ", ") + ")"
	if f.Result != nil {
		out += " -> " + rustType(f.Result, prefix)
	}
	return out
}

// bindings writes the bindings of a world.
type bindings struct {
	strings.Builder
	w      *World
	bounds []string // traits that the tool implements
	shims  []string // exported functions
	copies map[*Def]bool
}

// copyable reports whether a type has only values that are copied, and no text or list.
func (b *bindings) copyable(t *Type) bool {
	switch {
	case t == nil:
		return true
	case t.Kind == "string" || t.Kind == "list" || t.Kind == "odd":
		return false
	case t.Def != nil:
		known, ok := b.copies[t.Def]
		if !ok {
			for d := t.Def; d != nil; d = d.Used {
				known = d.Used != nil || b.copyable(d.Type)
			}
			b.copies[t.Def] = known
		}
		return known
	}
	return b.copyable(t.Elem) && !slices.ContainsFunc(t.Items, func(f Field) bool { return !b.copyable(f.Type) })
}

// Bindings returns src/bindings.rs of a tool that implements the world: its types, a trait for each
// set of exported functions, the functions that it imports, and the macro export.
func (w *World) Bindings() []byte {
	b := &bindings{w: w, copies: map[*Def]bool{}}
	b.WriteString("// Written by starling-host from wit/, at each build. Changes are lost.\n\n#![allow(dead_code, unused_imports, unused_macros, unused_variables, clippy::all)]\n\nuse self::abi::Abi as _;\n")
	b.defs("", w.Interface.Defs, false)
	var exported, imported []*Func
	for _, e := range w.Imports {
		if e.Func != nil && importable(e.Func) {
			imported = append(imported, e.Func)
		}
	}
	for _, e := range w.Exports {
		if e.Func != nil {
			exported = append(exported, e.Func)
		}
	}
	b.imports("", "$root", imported)
	b.exports("", "", nil, exported)
	units := w.units()
	slices.SortStableFunc(units, func(x, y *unit) int { return slices.Compare(x.module(), y.module()) })
	var open []string // modules
	enter := func(path []string) {
		for len(open) > len(path) || !slices.Equal(open, path[:len(open)]) {
			open = open[:len(open)-1]
			fmt.Fprintf(b, "%s}\n", strings.Repeat("    ", len(open)))
		}
		for ; len(open) < len(path); open = path[:len(open)+1] {
			fmt.Fprintf(b, "\n%spub mod %s {\n", strings.Repeat("    ", len(open)), path[len(open)])
		}
	}
	for _, u := range units {
		path := u.module()
		enter(path)
		indent := strings.Repeat("    ", len(path))
		fmt.Fprintf(b, "%suse crate::bindings::abi::{self, Abi as _};\n", indent)
		b.defs(indent, u.Defs, u.exported)
		if u.exported {
			b.exports(indent, u.name+"#", path, u.funcs)
		} else {
			b.imports(indent, u.name, u.funcs)
		}
	}
	enter(nil)
	fmt.Fprintf(b, "\n/// Makes a type that implements %s the tool.\nmacro_rules! export {\n    ($tool:ty) => {\n%s    };\n}\npub(crate) use export;\n%s",
		strings.Join(b.bounds, " and "), strings.Join(b.shims, ""), abiSource)
	return []byte(b.String())
}

func (b *bindings) defs(indent string, defs []*Def, exported bool) {
	for _, d := range defs {
		if !plain(d) {
			fmt.Fprintf(b, "\n%s// The type %s is not supported.\n", indent, d.Name)
			continue
		}
		name := camel(d.Name)
		b.WriteString("\n")
		if d.Used != nil {
			as := ""
			if d.Used.Name != d.Name {
				as = " as " + name
			}
			fmt.Fprintf(b, "%s%spub use crate::bindings::%s::%s%s;\n", rustDoc(indent, d.Doc), indent, d.Used.rustModule(b.w, exported), camel(d.Used.Name), as)
			continue
		}
		t := d.Type
		part := func(prefix, text string, f Field) {
			fmt.Fprintf(b, "%s%s    %s%s,\n", rustDoc(indent+"    ", f.Doc), indent, prefix, text)
		}
		// The comment and the trait are part of what the macro defines.
		head := rustDoc(indent+"    ", d.Doc)
		if (t.Kind == "record" || t.Kind == "variant") && b.copyable(t) {
			head += indent + "    #[derive(Copy)]\n"
		}
		if head != "" {
			head = "\n" + head + indent + "    "
		}
		head += name
		switch t.Kind {
		case "record":
			fmt.Fprintf(b, "%sabi::record!(%s {\n", indent, head)
			for _, f := range t.Items {
				part("", snake(f.Name)+": "+rustType(f.Type, ""), f)
			}
		case "variant", "enum":
			macro := map[string]string{"variant": "variant", "enum": "enumeration"}[t.Kind]
			fmt.Fprintf(b, "%sabi::%s!(%s, %d {\n", indent, macro, head, len(t.Items))
			for i, f := range t.Items {
				payload := ""
				if f.Type != nil {
					payload = "(value: " + rustType(f.Type, "") + ")"
				}
				part(fmt.Sprint(i, " "), camel(f.Name)+payload, f)
			}
		case "flags":
			bits := 8
			for bits < len(t.Items) {
				bits *= 2
			}
			fmt.Fprintf(b, "%sabi::flags!(%s, u%d {\n", indent, head, bits)
			for i, f := range t.Items {
				part(fmt.Sprint(i, " "), strings.ToUpper(snake(f.Name)), f)
			}
		default:
			fmt.Fprintf(b, "%s%spub type %s = %s;\n", rustDoc(indent, d.Doc), indent, name, rustType(t, ""))
			continue
		}
		fmt.Fprintf(b, "%s});\n", indent)
	}
}

// cores are the core types as Rust has them, and what turns one into bits and back.
var cores = map[byte][3]string{
	'i': {"i32", "%s as u32 as u64", "%s as i32"}, 'I': {"i64", "%s as u64", "%s as i64"},
	'f': {"f32", "%s.to_bits() as u64", "f32::from_bits(%s as u32)"}, 'F': {"f64", "%s.to_bits()", "f64::from_bits(%s)"},
}

// exports writes a trait with functions, and for each of them the function that the host calls.
func (b *bindings) exports(indent, core string, path []string, funcs []*Func) {
	if len(funcs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%spub trait Guest {\n", indent)
	for _, f := range funcs {
		fmt.Fprintf(b, "%s%s    %s;\n", rustDoc(indent+"    ", f.Doc), indent, signature(f, ""))
	}
	fmt.Fprintf(b, "%s}\n", indent)
	at := strings.Join(append([]string{"bindings"}, path...), "::")
	b.bounds = append(b.bounds, at+"::Guest")
	for _, f := range funcs {
		flat, result := f.flat()
		params, bits, names, args, returns := "", "", "", "", ""
		for i, c := range []byte(flat) {
			arg := fmt.Sprint("a", i)
			params += arg + ": " + cores[c][0] + ", "
			args += arg + ", "
			bits += fmt.Sprintf(cores[c][1], arg) + ", "
		}
		for _, p := range f.Params {
			names += snake(p.Name) + ", "
		}
		types, body := tuple(f.Params, ""), "T::"+snake(f.Name)+"("+strings.TrimSuffix(names, ", ")+")"
		switch {
		case result == "":
		case f.byAddress():
			returns, body = " -> *mut u8", "abi::give("+body+")"
		default:
			returns = " -> " + cores[result[0]][0]
			body = "let mut flat = [0];\n" + indent + "    abi::Abi::lower(" + body + ", &mut flat);\n" + indent + "    " + fmt.Sprintf(cores[result[0]][2], "flat[0]")
		}
		lift := "let (" + names + ") = <" + types + " as abi::Abi>::lift(&[" + strings.TrimSuffix(bits, ", ") + "]);"
		switch {
		case len(f.Params) == 0:
			lift = ""
		case f.indirect():
			params, args = "at: *mut u8, ", "at, "
			lift = "let (" + names + ") = abi::take::<" + types + ">(at);"
		}
		if lift != "" {
			lift = indent + "    " + lift + "\n"
		}
		name := snake(f.Name)
		fmt.Fprintf(b, "\n%[1]s#[doc(hidden)]\n%[1]spub unsafe fn export_%[2]s<T: Guest>(%[3]s)%[4]s {\n%[5]s%[1]s    %[6]s\n%[1]s}\n", indent, name, strings.TrimSuffix(params, ", "), returns, lift, body)
		shim := func(export, params, returns, call string) {
			n := len(b.shims)
			b.shims = append(b.shims, fmt.Sprintf("        #[cfg(target_arch = \"wasm32\")]\n        const _: () = {\n            #[export_name = %q]\n            unsafe extern \"C\" fn export_%d(%s)%s {\n                $crate::%s::%s\n            }\n        };\n", export, n, params, returns, at, call))
		}
		shim(core+f.Name, strings.TrimSuffix(params, ", "), returns, "export_"+name+"::<$tool>("+strings.TrimSuffix(args, ", ")+")")
		if f.byAddress() {
			fmt.Fprintf(b, "\n%[1]s#[doc(hidden)]\n%[1]spub unsafe fn after_%[2]s(at: *mut u8) {\n%[1]s    drop(abi::take::<%[3]s>(at));\n%[1]s}\n", indent, name, rustType(f.Result, ""))
			shim("cabi_post_"+core+f.Name, "at: *mut u8", "", "after_"+name+"(at)")
		}
	}
}

// imports writes functions that the tool can call.
func (b *bindings) imports(indent, module string, funcs []*Func) {
	for _, f := range funcs {
		flat, result := f.flat()
		var params, args []string
		names := ""
		for _, p := range f.Params {
			names += snake(p.Name) + ", "
		}
		types := tuple(f.Params, "")
		for i, c := range []byte(flat) {
			params = append(params, fmt.Sprint("a", i, ": ", cores[c][0]))
			args = append(args, fmt.Sprintf(cores[c][2], fmt.Sprintf("flat[%d]", i)))
		}
		before, after := fmt.Sprintf("let mut flat = [0u64; %d];\n        <%s as abi::Abi>::lower((%s), &mut flat);", len(flat), types, names), fmt.Sprintf("drop(<%s as abi::Abi>::lift(&flat));", types)
		switch {
		case len(f.Params) == 0:
			before, after = "", ""
		case f.indirect():
			params, args = []string{"at: *mut u8"}, []string{"at"}
			before, after = "let at = abi::give(("+names+"));", "drop(abi::take::<"+types+">(at));"
		}
		returns, call := "", ""
		switch {
		case f.byAddress():
			params, args = append(params, "to: *mut u8"), append(args, "to")
			call = "let result = abi::receive::<" + rustType(f.Result, "") + ">(|to| import(" + strings.Join(args, ", ") + "));"
		case result != "":
			returns = " -> " + cores[result[0]][0]
			call = "let bits = import(" + strings.Join(args, ", ") + ");\n        let result = <" + rustType(f.Result, "") + " as abi::Abi>::lift(&[" + fmt.Sprintf(cores[result[0]][1], "bits") + "]);"
		default:
			call = "let result = import(" + strings.Join(args, ", ") + ");"
		}
		text := fmt.Sprintf(`
%spub %s {
    #[cfg(not(target_arch = "wasm32"))]
    unreachable!("%s is called outside of a component");
    #[cfg(target_arch = "wasm32")]
    unsafe {
        #[link(wasm_import_module = %q)]
        extern "C" {
            #[link_name = %q]
            fn import(%s)%s;
        }
        %s
        %s
        %s
        result
    }
}
`, rustDoc("", f.Doc), signature(f, ""), f.Name, module, f.Name, strings.Join(params, ", "), returns, before, call, after)
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) != "" {
				b.WriteString(indent + line)
			} else if line == "\n" {
				b.WriteString(line)
			}
		}
	}
}

// Sample is a call of an exported function, as the tool answers it before it is written.
type Sample struct {
	Tool          string
	Input, Output json.RawMessage
}

// Source returns src/lib.rs of a new tool, whose functions return something, and a call of each.
func (w *World) Source() (source []byte, samples []Sample) {
	b := &strings.Builder{}
	b.WriteString("mod bindings;\n")
	taken := map[string]bool{}
	write := func(prefix, iface string, funcs []*Func) {
		fmt.Fprintf(b, "\nimpl %sGuest for Tool {\n", prefix)
		for i, f := range funcs {
			if i > 0 {
				b.WriteString("\n")
			}
			s := &sampler{w: w, exported: iface != "", prefix: prefix}
			output, body := "null", ""
			if f.Result != nil {
				value, doc := s.value(f.Result)
				if output = doc; f.Result.root().Kind == "result" { // ok is what a tool returns
					_, output = s.value(f.Result.root().Items[0].Type)
				}
				body = "\n        " + value + "\n    "
			}
			var input []string
			for _, p := range f.Params {
				_, doc := s.value(p.Type)
				input = append(input, quoted(p.Name)+":"+doc)
			}
			tool := strings.ToLower(f.Name) // as the linker of components names it
			if taken[tool] {
				tool = strings.ToLower(iface + "-" + f.Name)
			}
			taken[tool] = true
			samples = append(samples, Sample{tool, json.RawMessage("{" + strings.Join(input, ",") + "}"), json.RawMessage(output)})
			fmt.Fprintf(b, "%s    %s {%s}\n", rustDoc("    ", f.Doc), signature(f, prefix), body)
		}
		b.WriteString("}\n")
	}
	var own []*Func
	for _, e := range w.Exports {
		if e.Func != nil {
			own = append(own, e.Func)
		}
	}
	short := map[string]int{}
	for _, u := range w.units() {
		if u.exported {
			path := u.module()
			if short[path[len(path)-1]]++; len(u.funcs) > 0 && short[path[len(path)-1]] == 1 {
				fmt.Fprintf(b, "%suse bindings::%s;\n", map[bool]string{true: "\n"}[len(short) == 1], strings.Join(path, "::"))
			}
		}
	}
	b.WriteString("\nstruct Tool;\n")
	if len(own) > 0 {
		write("bindings::", "", own)
	}
	for _, u := range w.units() {
		if path := u.module(); u.exported && len(u.funcs) > 0 {
			prefix := path[len(path)-1] + "::"
			if short[path[len(path)-1]] > 1 {
				prefix = "bindings::" + strings.Join(path, "::") + "::"
			}
			write(prefix, u.Name, u.funcs)
		}
	}
	fmt.Fprintf(b, "\nbindings::export!(Tool);\n")
	return []byte(b.String()), samples
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// root returns the type that names stand for.
func (t *Type) root() *Type {
	for t.Kind == "def" {
		t = t.Def.Type
	}
	return t
}

// sampler writes a value of each type, in Rust and in JSON.
type sampler struct {
	w        *World
	exported bool   // the types are of an exported interface
	prefix   string // of types
	size     int
}

func (s *sampler) value(t *Type) (rust, doc string) {
	if s.size++; s.size > 200 {
		return "todo!()", "null"
	}
	if t == nil {
		return "()", "null"
	}
	switch t.Kind {
	case "bool":
		return "false", "false"
	case "char":
		return "'a'", `"a"`
	case "string":
		return "String::new()", `""`
	case "f32", "f64":
		return "0.0", "0.0"
	case "list":
		return "Vec::new()", "[]"
	case "option":
		return "None", "null"
	case "result":
		rust, doc = s.value(t.Items[0].Type)
		return "Ok(" + rust + ")", `{"ok":` + doc + "}"
	case "tuple":
		var parts, docs []string
		for _, f := range t.Items {
			part, doc := s.value(f.Type)
			parts, docs = append(parts, part), append(docs, doc)
		}
		rust = strings.Join(parts, ", ")
		if len(parts) == 1 {
			rust += ","
		}
		return "(" + rust + ")", "[" + strings.Join(docs, ",") + "]"
	case "def":
		return s.named(t.Def)
	}
	return "0", "0"
}

func (s *sampler) named(d *Def) (rust, doc string) {
	name, t := s.prefix+camel(d.Name), d.Type
	defer func(prefix string) { s.prefix = prefix }(s.prefix)
	for ; d.Used != nil; d = d.Used { // the parts have the names of its interface
		s.prefix = "bindings::" + d.Used.rustModule(s.w, s.exported) + "::"
	}
	switch t.Kind {
	case "record":
		var parts, docs []string
		for _, f := range t.Items {
			part, doc := s.value(f.Type)
			parts, docs = append(parts, snake(f.Name)+": "+part), append(docs, quoted(f.Name)+":"+doc)
		}
		return name + " { " + strings.Join(parts, ", ") + " }", "{" + strings.Join(docs, ",") + "}"
	case "enum":
		return name + "::" + camel(t.Items[0].Name), quoted(t.Items[0].Name)
	case "variant":
		rust, doc = name+"::"+camel(t.Items[0].Name), `{"tag":`+quoted(t.Items[0].Name)
		if payload := t.Items[0].Type; payload != nil {
			part, value := s.value(payload)
			return rust + "(" + part + ")", doc + `,"val":` + value + "}"
		}
		return rust, doc + "}"
	case "flags":
		var docs []string
		for _, f := range t.Items {
			docs = append(docs, quoted(f.Name)+":false")
		}
		return name + "::empty()", "{" + strings.Join(docs, ",") + "}"
	}
	return s.value(t)
}
