package component

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// tool is an exported function that is a tool.
type tool struct {
	name, doc string
	f         *function
	input     *valueType // what it takes as a tool
}

// maxTools is the most that a description may list.
const maxTools = 64

// noCaller is the caller of a tool.
const noCaller = -1

// chooseTools finds the exported functions that can be tools, or the command.
func (k *linker) chooseTools(docs docs) {
	var all, not []string
	taken := map[string]bool{}
	add := func(iface, name string, f *function) {
		k.hold(namedBytes)
		all = append(all, strings.TrimPrefix(k.text(iface+"#"+name), "#"))
		params, r := f.t.params, f.t.result
		switch {
		case f.lift == nil:
			return
		case strings.HasPrefix(iface, "wasi:cli/run@0.2."):
			k.command = true
			k.tools = []*tool{{f: f}}
			return
		case k.command, strings.HasPrefix(iface, "wasi:"):
			return
		case iface == "" && name == "init" && len(params.items) > 0 && params.items[0].name == "shim": // of componentize-qjs, which has called it
			return
		case strings.HasPrefix(name, "["):
			not = append(not, name+" belongs to a resource")
			return
		case params.odd != "":
			not = append(not, name+" takes "+params.odd)
			return
		case r != nil && r.odd != "" && r.kind != kindVariant && r.kind != kindResult: // a case of these may never come
			not = append(not, name+" returns "+r.odd)
			return
		case params.owns || r != nil && r.owns:
			not = append(not, name+" takes or returns a resource")
			return
		}
		k.spend(len(docs.Worlds))
		if len(k.tools) == maxTools {
			failf("export fewer functions", "it has more than %d functions that are tools", maxTools)
		}
		t := &tool{name: toolName(name), f: f, input: params, doc: cmp.Or(docs.of(iface, name), all[len(all)-1])}
		if taken[t.name] {
			t.name = toolName(short(iface) + "-" + name)
		}
		for n, base := 2, t.name; taken[t.name]; n++ {
			t.name = base[:min(len(base), 60)] + "-" + strconv.Itoa(n)
		}
		taken[t.name] = true
		k.tools = append(k.tools, t)
	}
	for _, name := range k.exports.names {
		switch v := k.exports.items[name].v.(type) {
		case *function:
			add("", name, v)
		case *instance:
			k.spend(len(v.names))
			for _, fn := range v.names {
				if f, ok := v.items[fn].v.(*function); ok {
					add(name, fn, f)
				}
			}
		}
	}
	k.chooseWorld()
	for _, t := range k.tools {
		k.called = append(k.called, called{t.f, noCaller}) // also a second time, under another name
	}
	switch {
	case len(k.tools) > 0:
	case slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "wasi:http/") }):
		failf("export functions from its world: each becomes a tool", "it is a server (%s), and a tool is called with a document", all[0])
	case len(not) > 0:
		failf("export a function of plain values", "it exports no function that can be a tool: %s", clip(not))
	default:
		failf("export a function of plain values", "it exports no function that can be a tool: %s", cmp.Or(clip(all), "it exports nothing"))
	}
}

// clip joins names of the component for a message.
func clip(names []string) string {
	const most = 8
	if len(names) > most {
		names = append(names[:most:most], "and "+strconv.Itoa(len(names)-most)+" more")
	}
	return strings.Join(names, ", ")
}

// short is an interface's own name: store of wasi:config/store@0.2.0.
func short(iface string) string {
	iface, _, _ = strings.Cut(iface, "@")
	return iface[strings.LastIndexAny(iface, "/:")+1:]
}

// toolName is the name of a function as a tool has it, which is the function's own unless it has
// capitals.
func toolName(s string) string {
	out := []byte(strings.ToLower(s))
	for i, c := range out {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			out[i] = '_'
		}
	}
	if len(out) == 0 || out[0] < 'a' || out[0] > 'z' {
		out = append([]byte("f"), out...)
	}
	return string(out[:min(len(out), 64)])
}

// Flags of a function in the descriptors.
const (
	resultByAddress = 1 << iota
	hasPost
	paramsByAddress
	isAsync
)

// hostResource is the number of a resource of the host, whose handles say what they are.
const hostResource = 0xffffffff

// descriptors writes what the guest side reads of the functions: words, little endian, at offsets
// from the beginning. A function has eight words; a type has seven, and five for each part: name,
// its bytes, type, offset, and the number of the part whose name is the one of this rank.
func (k *linker) descriptors() []byte {
	const headWords, functionWords = 3, 8
	d := &descriptors{k: k, types: map[*valueType]uint32{}, b: make([]byte, 4*(headWords+functionWords*(len(k.called)+len(k.actions))))}
	d.put(0, uint32(len(k.called)+len(k.actions)), 4*headWords, 0)
	for i, f := range k.called {
		var name, nameBytes, callerInstance uint32
		if f.caller == noCaller && !k.command {
			name, nameBytes = d.text(k.tools[i].name)
		} else {
			callerInstance = uint32(max(f.caller, 0))
		}
		flags, result := uint32(0), uint32(0)
		if f.t.result != nil {
			result = d.node(f.t.result)
			if most := map[bool]int{false: maxFlatResults, true: maxFlatParams}[f.opts.async]; len(f.t.result.flat) > most {
				flags |= resultByAddress
			}
		}
		if f.opts.post != nil {
			flags |= hasPost
		}
		if len(f.t.params.flat) > maxFlatParams {
			flags |= paramsByAddress
		}
		if f.opts.async {
			flags |= isAsync
		}
		params := d.node(f.t.params)
		d.put(4*(headWords+functionWords*i), name, nameBytes, params, result, flags, callerInstance, uint32(f.owner), 0)
	}
	for i, a := range k.actions { // which are functions with an id in place of types
		name, nameBytes := d.text(a.name())
		id, idBytes := d.text(a.ID)
		address, addressBytes := d.text(a.Address)
		header, headerBytes := d.text(a.Authorization)
		d.put(4*(headWords+functionWords*(len(k.called)+i)), name, nameBytes, id, idBytes, address, addressBytes, header, headerBytes)
	}
	return d.b
}

type descriptors struct {
	k     *linker
	b     []byte
	types map[*valueType]uint32
}

func (d *descriptors) put(at int, words ...uint32) {
	for i, w := range words {
		binary.LittleEndian.PutUint32(d.b[at+4*i:], w)
	}
}

func (d *descriptors) text(s string) (at, n uint32) {
	d.k.text(s)
	at = uint32(len(d.b))
	d.b = append(d.b, s...)
	d.b = append(d.b, make([]byte, -len(s)&3)...)
	return at, uint32(len(s))
}

// node writes a type, its parts first, and returns its offset.
func (d *descriptors) node(t *valueType) uint32 {
	if t == nil {
		return 0
	}
	if at, ok := d.types[t]; ok {
		return at
	}
	d.k.spend(1 + len(t.items))
	d.k.hold(namedBytes * (1 + len(t.items)))
	order := make([]int, len(t.items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(t.items[a].name, t.items[b].name) })
	var rows []uint32
	offset := uint32(0)
	for i, f := range t.items {
		node := d.node(f.t)
		name, n := d.text(`"` + f.name + `":`) // as it stands in a document
		name, n = name+1, n-3
		at := uint32(0)
		if t.kind == kindRecord || t.kind == kindTuple {
			at = alignTo(offset, f.t.align)
			offset = at + f.t.size
		}
		rows = append(rows, name, n, node, at, uint32(order[i]))
	}
	a := t.disc
	switch t.kind {
	case kindList, kindOption:
		a = d.node(t.elem)
	case kindFlags:
		a = t.size
	case kindOwn, kindBorrow:
		a = hostResource
		if t.res.own {
			a = numbered(d.k, &d.k.resources, t.res)
		}
	}
	words := append([]uint32{uint32(t.kind), t.size, t.align, uint32(len(t.flat)), uint32(len(t.items)), a, t.at}, rows...)
	at := len(d.b)
	d.b = append(d.b, make([]byte, 4*len(words))...)
	d.put(at, words...)
	d.types[t] = uint32(at)
	return uint32(at)
}

// description is what starling_describe returns.
func (k *linker) description() []byte {
	tools := lists.Map(k.tools, func(t *tool) abi.ToolDescription {
		return abi.ToolDescription{Name: t.name, Description: t.doc, InputSchema: encode(k.schema(t.input))}
	})
	if len(k.actions) > 0 {
		tools = lists.Map(k.actions, func(a Action) abi.ToolDescription {
			return abi.ToolDescription{Name: a.name(), Description: plain(a.Description), InputSchema: a.Schema, Effects: a.Hosts}
		})
	}
	return encode(abi.Description{Tools: tools})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types are ours
	}
	return b
}

type object = map[string]any

// integers are the bounds of the integer types.
var integers = map[kind][2]any{
	kindS8: {-1 << 7, 1<<7 - 1}, kindU8: {0, 1<<8 - 1}, kindS16: {-1 << 15, 1<<15 - 1}, kindU16: {0, 1<<16 - 1}, kindS32: {-1 << 31, 1<<31 - 1},
	kindU32: {0, int64(1<<32 - 1)}, kindS64: {int64(-1 << 63), int64(1<<63 - 1)}, kindU64: {0, uint64(1<<64 - 1)},
}

// members is the JSON Schema of an object. It has no members but these, so that a misspelt one is
// refused and not ignored. The input of a plug-in is a document of any form.
func (k *linker) members(properties object, required []string) object {
	o := object{"type": "object", "properties": properties}
	if required != nil {
		o["required"] = required
	}
	if !k.plugin {
		o["additionalProperties"] = false
	}
	return o
}

// schema is the JSON Schema of a type, in the forms that Wassette gives components.
func (k *linker) schema(t *valueType) object {
	k.spend(1)
	k.hold(2 * scopeBytes) // an object is a map in a map, and text after that
	if t == nil {
		return object{"type": "null"}
	}
	if b, ok := integers[t.kind]; ok {
		return object{"type": "integer", "minimum": b[0], "maximum": b[1]}
	}
	properties, required := object{}, []string{}
	switch t.kind {
	case kindBool:
		return object{"type": "boolean"}
	case kindF32, kindF64:
		return object{"anyOf": []object{{"type": "number"}, {"enum": []string{"NaN", "Infinity", "-Infinity"}}}}
	case kindChar:
		return object{"type": "string", "minLength": 1, "maxLength": 1}
	case kindString:
		return object{"type": "string"}
	case kindList:
		return object{"type": "array", "items": k.schema(t.elem)}
	case kindOption:
		return object{"anyOf": []object{{"type": "null"}, k.schema(t.elem)}}
	case kindTuple:
		items := lists.Map(t.items, func(f field) object { return k.schema(f.t) })
		return object{"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
	case kindRecord:
		for _, f := range t.items {
			k.text(f.name)
			properties[f.name] = k.schema(f.t)
			if f.t.kind != kindOption {
				required = append(required, f.name)
			}
		}
		return k.members(properties, required)
	case kindFlags:
		for _, f := range t.items {
			k.text(f.name)
			properties[f.name] = object{"type": "boolean"}
		}
		return k.members(properties, nil)
	case kindEnum:
		return object{"type": "string", "enum": lists.Map(t.items, func(f field) string { return k.text(f.name) })}
	}
	var cases []object
	for _, f := range t.items {
		if t.kind == kindResult {
			cases = append(cases, k.members(object{f.name: k.schema(f.t)}, []string{f.name}))
			continue
		}
		k.hold(scopeBytes)
		properties, required := object{"tag": object{"const": k.text(f.name)}}, []string{"tag"}
		if f.t != nil {
			properties["val"], required = k.schema(f.t), append(required, "val")
		}
		cases = append(cases, k.members(properties, required))
	}
	return object{"oneOf": cases}
}

// docs are the comments of the WIT that a component was made from, as its section package-docs
// has them.
type docs struct {
	Worlds map[string]struct {
		Funcs      map[string]comment   `json:"funcs"`
		Exports    map[string]comment   `json:"func_exports"`
		Interfaces map[string]functions `json:"interfaces"`
		Exported   map[string]functions `json:"interface_exports"`
	} `json:"worlds"`
	Interfaces map[string]functions `json:"interfaces"`
}

type functions struct {
	Funcs map[string]comment `json:"funcs"`
}

// comment is a text, or an object that has it.
type comment string

// UnmarshalJSON reads both forms.
func (c *comment) UnmarshalJSON(b []byte) error {
	var form struct {
		Docs string `json:"docs"`
	}
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &form)
		*c = comment(form.Docs)
		return err
	}
	return json.Unmarshal(b, (*string)(c))
}

// documentation reads the comments of a component, whose section begins with its version. A
// section that is malformed has none.
func (l *reading) documentation(notes map[string][]byte) (d docs) {
	section := notes["package-docs"]
	l.spend(len(section))
	l.hold(32 * len(section)) // of a map for each few bytes
	if len(section) > 1 && json.Unmarshal(section[1:], &d) != nil {
		return docs{}
	}
	return d
}

// of returns the comment on an exported function as one text that a description may have, or "".
func (d docs) of(iface, name string) string {
	found := d.Interfaces[short(iface)].Funcs[name]
	for _, world := range slices.Sorted(maps.Keys(d.Worlds)) {
		w := d.Worlds[world]
		if iface == "" {
			found = cmp.Or(found, w.Exports[name], w.Funcs[name])
		} else {
			found = cmp.Or(found, w.Exported[short(iface)].Funcs[name], w.Interfaces[short(iface)].Funcs[name])
		}
	}
	return plain(string(found))
}

// plain is text of the component without what a description may not have: characters that a
// reader does not see. It is cut to 4,000 bytes.
func plain(s string) string {
	const most = 4_000
	s = display.WithoutInvisible(s)
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), most)], ""))
}

// Provenance is what a joined module says of the component that it comes from, in its custom
// section starling:component.
type Provenance struct {
	Component string   `json:"component"` // BLAKE3-256 of its bytes, in hexadecimal
	Linker    int      `json:"linker"`    // the version of the linker
	Imports   []string `json:"imports,omitempty"`
	Exports   []string `json:"exports"`
	Producers []string `json:"producers,omitempty"` // the programs that made it, with their versions

	// What its author says of it, in the sections that "wasm-tools metadata add" writes, or in the
	// section act:component of ACT.
	Name        string `json:"name,omitempty"`
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
	License     string `json:"license,omitempty"`
	Source      string `json:"source,omitempty"`
}

const provenanceSection = "starling:component"

// provenance returns the section for a module that is joined of a component, which has these
// custom sections.
func (k *linker) provenance(b []byte, notes map[string][]byte) []byte {
	note := func(section string) string { return plain(string(notes[section])) }
	var act struct {
		Std struct {
			Name        string `cbor:"name"`
			Version     string `cbor:"version"`
			Description string `cbor:"description"`
		} `cbor:"std"`
	}
	k.hold(8 * len(notes["act:component"]))
	_ = canon.Unmarshal(notes["act:component"], &act) // a section that is malformed says nothing
	p := Provenance{
		Component: canon.Sum(b).String(), Linker: Version, Imports: k.imports, Exports: k.exports.names, Producers: producers(notes["producers"]),
		Name: plain(act.Std.Name), Version: cmp.Or(note("version"), plain(act.Std.Version)),
		Description: cmp.Or(note("description"), plain(act.Std.Description)), License: note("licenses"), Source: note("source"),
	}
	return append(wasm.AppendName(nil, provenanceSection), encode(p)...)
}

// producers reads a section of that name: fields, each with names and versions.
func producers(b []byte) (all []string) {
	r := wasm.NewReader(b, 0, len(b))
	for range r.Count("fields", 2) {
		r.Name()
		for range r.Count("values", 2) {
			made := strings.TrimSpace(plain(r.Name()) + " " + plain(r.Name()))
			if r.Err() != nil || len(all) == 32 {
				return all
			}
			all = append(all, made)
		}
	}
	return all
}

// ProvenanceOf returns what a module says of the component that it was made of, or nil.
func ProvenanceOf(b *work.Budget, module []byte) *Provenance {
	m, err := wasm.Split(module)
	if err != nil {
		return nil
	}
	s, p := m.Custom(provenanceSection), &Provenance{}
	if s == nil || b.Hold(16*len(s.Body)) != nil || json.Unmarshal(s.Content(), p) != nil {
		return nil
	}
	return p
}

// Action is one of the tools that the manifest of a tool for IronClaw lists. The component has
// one function for all of them.
type Action struct {
	ID          string // such as slack.search_messages
	Description string
	Schema      abi.JSON // of the input
	Hosts       []string // that it asks for

	// Authorization is the header of requests to addresses that begin with Address, with the
	// placeholder of a secret.
	Address, Authorization string
}

func (a Action) name() string { return toolName(a.ID) }

// worlds are interfaces of tools whose functions the guest side calls itself, in this order. It
// has a function PREFIXexecute for them, and one PREFIXdescribe.
var worlds = []struct {
	iface, prefix string
	functions     []string
}{
	{"near:agent/tool@", "agent_", []string{"execute", "schema", "description"}},
	{"act:tools/tool-provider@0.1.", "act_", []string{"list-tools", "call-tool"}},
}

// chooseWorld makes the functions of one of the worlds the only ones that are called, if the
// component exports one.
func (k *linker) chooseWorld() {
	for _, name := range k.exports.names {
		i, ok := k.exports.items[name].v.(*instance)
		for _, w := range worlds {
			if !ok || !strings.HasPrefix(name, w.iface) || k.guestFunc(w.prefix+"execute") == nil {
				continue
			}
			var found []*tool
			for _, fn := range w.functions {
				if f, ok := i.items[fn].v.(*function); ok && f.lift != nil {
					found = append(found, &tool{name: fn, f: f})
				}
			}
			if len(found) == len(w.functions) {
				k.tools, k.command, k.prefix = found, false, w.prefix
			}
		}
	}
	if len(k.actions) > 0 && k.prefix != worlds[0].prefix {
		failf("", "it does not export near:agent/tool, and has a manifest of IronClaw")
	}
	taken := map[string]bool{}
	for _, a := range k.actions {
		if taken[a.name()] {
			failf("", "two tools of the manifest are named %s", a.name())
		}
		taken[a.name()] = true
	}
}
