package component

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Version is the version of the linker. It changes when a component gives another module. A
// module that an earlier version made keeps its digest, and replays.
const Version = 3

//go:embed guest/guest.wasm
var guestSide []byte

// linker holds the joined module while it is put together.
type linker struct {
	*reading
	exports *instance
	parts   []*part // by the number of the instance
	guest   *part
	tools   []*tool
	command bool
	plugin  bool   // of Extism
	prefix  string // of what calls the tools in the guest side
	actions []Action

	types   []wasm.FuncType
	typeOf  map[string]uint32
	fns     []*fn
	globals []constant
	table   *table
	memory  *wasm.Limits
	main    *part // defines the memory
	last    wasm.Instr

	base, stack       uint32 // globals of the guest side: its memory and its stack
	realloc, instance uint32 // of the lowered call in progress: number among reallocs, and instance
	busy              uint32 // no lowered call is allowed
	before            uint32 // of a plug-in: the pages before the guest side took some; 0 is none
	memorySize        *fn    // for instructions of a plug-in
	memoryGrow        *fn
	context, callers  []uint32 // slots of context.get and context.set, if it has them; and of the caller of an allocator

	links     map[string]*fn // what the guest side imports of the linker
	start     *fn            // gives the guest side its memory
	stubs     map[*coreFunc]*fn
	exported  map[*part]map[string]wasm.Export
	reallocs  []*fn
	called    []called // by number: the tools, then what parts call
	resources []*resource
}

// Link returns the core module of a component or of a plug-in for Extism: a tool of the contract
// starling:v1, or a WASI command. The actions are those of the manifest of a tool for IronClaw. Other core modules stay as they are. All
// that is read, visited and kept draws from the budget. The error is a [*rewrite.Refusal], or the
// cause of the end of the budget's context. The same bytes and actions give the same module.
func Link(budget *work.Budget, b []byte, actions ...Action) (out []byte, err error) {
	defer func() {
		var refused *rewrite.Refusal
		switch v := recover().(type) {
		case nil:
			return
		case failure:
			refused = v.Refusal
		case exhausted:
			if !errors.Is(v.error, work.ErrExceeded) {
				out, err = nil, v.error
				return
			}
			refused = refusal("remove what repeats: the same types, names or parts are read again and again", "%v", v.error)
		default: // a mistake of this package that some component found; the process lives
			refused = refusal("", "the linker panics: %v", v)
		}
		if !wasm.IsComponent(b) {
			refused.What = "plug-in: " + strings.TrimPrefix(refused.What, "component: ")
		}
		out, err = nil, refused
	}()
	most := rewrite.DefaultLimits().ModuleBytes // the gate's, which is asked next
	if len(b) > most {
		failf(rewrite.Strip, "it has %d bytes, the limit is %d", len(b), most)
	}
	k := &linker{
		reading: &reading{budget: budget, buf: b},
		typeOf:  map[string]uint32{}, links: map[string]*fn{}, stubs: map[*coreFunc]*fn{},
		exported: map[*part]map[string]wasm.Export{}, actions: actions,
	}
	for _, g := range []*uint32{&k.base, &k.stack, &k.realloc, &k.instance, &k.busy} {
		*g = k.global()
	}
	k.joinGuest()
	notes := k.custom(b)
	if wasm.IsComponent(b) {
		k.exports = k.component(&section{pos: 8, end: len(b)}, nil, -1, 0)
		if k.tasks {
			k.context, k.callers = []uint32{k.global(), k.global()}, []uint32{k.global(), k.global()}
		}
		k.chooseTools(k.documentation(notes))
	} else if !k.readPlugin(b) {
		return b, nil // the name of Extism's module stands elsewhere in the imports
	}
	if out = k.link(k.provenance(b, notes)); len(out) > most {
		failf(rewrite.Strip, "its parts become a module of %d bytes, the limit is %d", len(out), most)
	}
	return out, nil
}

// link joins what was read. The note is a custom section for the joined module.
func (k *linker) link(note []byte) []byte {
	started := false
	starts := k.add(&fn{name: "start", code: wasm.Asm{0}})
	for i, inst := range k.reading.parts {
		m := k.decode(inst.module, i)
		p := &part{Module: m, name: cmp.Or(m.Name(), "module"+strconv.Itoa(i))}
		k.join(p, func(im wasm.Import) any {
			if k.plugin {
				return k.pluginArgument(p, im)
			}
			return k.argument(inst, im)
		})
		k.parts = append(k.parts, p)
		if started && len(m.Data) > 0 {
			failf("", "%s has data that is written after another part has started", p.name)
		}
		if m.Start != nil {
			starts.call(at(p.funcs, *m.Start, "function"))
			started = started || k.usesMemory(p)
		}
	}
	if k.plugin {
		k.startPlugin(starts)
	}
	k.memory = cmp.Or(k.memory, &wasm.Limits{Min: 1}) // without one it computes with numbers alone; the guest side needs a memory
	exports := []export{{abi.ExportMemory, nil}}
	if k.command {
		f := k.resolve(k.tools[0].f.lift)
		if want := (wasm.FuncType{Results: []wasm.ValType{wasm.I32}}); !k.same(f.t, want) {
			failf("", "malformed: run is %s, not %s", f.t, want)
		}
		starts.call(k.start)
		starts.call(f)
		starts.call(k.guestFunc("exit_failed"))
		exports = append(exports, export{abi.ExportStart, starts})
	} else {
		starts.call(k.start)
		exports = append(exports, export{abi.ExportInitialize, starts}, export{abi.ExportAlloc, k.guestFunc("alloc")},
			export{abi.ExportDescribe, k.describeFunc()}, export{abi.ExportExecute, k.guestFunc(k.prefix + "execute")})
	}
	starts.code.Op(wasm.OpEnd)
	k.finishLinks()
	k.finishStart(k.descriptors())
	return k.encode(exports, note)
}

// decode reads core module i.
func (k *linker) decode(b []byte, i int) *wasm.Module {
	k.spend(len(b))
	m, err := wasm.DecodeLibrary(k.budget, b)
	unreadable("core module "+strconv.Itoa(i), err)
	return m
}

// argument returns what an instance of a core module is given for an import.
func (k *linker) argument(i *coreInstance, im wasm.Import) any {
	from := i.args[im.Module]
	if from == nil {
		failf("", "malformed: a core module lacks the argument %q", im.Module)
	}
	k.hold(funcBytes)
	k.text(im.Name)
	it := from.export(im.Kind, im.Name)
	if it.kind == wasm.ExternFunc {
		return k.resolve(it.fn)
	}
	p, index := k.definition(it)
	switch it.kind {
	case wasm.ExternTable:
		return at(p.tables, index, "table")
	case wasm.ExternGlobal:
		return at(p.globals, index, "global")
	}
	k.spend(len(p.Imports))
	for _, im := range p.Imports {
		if im.Kind == wasm.ExternMemory { // it exports what it imports
			return k.main
		}
	}
	return p
}

// definition returns the part that exports an item, and the item's index there.
func (k *linker) definition(it coreItem) (*part, uint32) {
	p := k.parts[it.inst.number]
	index, ok := k.find(p, it.kind, it.name)
	if !ok {
		failf("", "malformed: %s does not export the %s %q", p.name, it.kind, it.name)
	}
	return p, index
}

// find returns the index of an export.
func (k *linker) find(p *part, kind wasm.ExternKind, name string) (index uint32, ok bool) {
	all := k.exported[p]
	if all == nil {
		all = map[string]wasm.Export{}
		for _, e := range p.Exports {
			all[e.Name] = e
		}
		k.exported[p] = all
	}
	e, ok := all[name]
	return e.Index, ok && e.Kind == kind
}

// resolve returns the function of the joined module that a core function is.
func (k *linker) resolve(f *coreFunc) *fn {
	if f.kind == builtinExport {
		p, index := k.definition(f.export)
		return at(p.funcs, index, "function")
	}
	stub, ok := k.stubs[f]
	if !ok {
		stub = k.stub(f)
		k.stubs[f] = stub
	}
	return stub
}

// joinGuest joins the guest side: its imports are what the host has, and functions of the
// linker that get their code once everything is known.
func (k *linker) joinGuest() {
	m, err := wasm.DecodeLibrary(k.budget, guestSide)
	if err != nil {
		panic(err)
	}
	k.guest = &part{Module: m, name: "wasi"}
	k.start = k.add(&fn{name: "wasi.start"})
	k.join(k.guest, func(im wasm.Import) any {
		switch {
		case im.Kind == wasm.ExternFunc && im.Module == "link":
			f := k.add(&fn{name: "link." + im.Name, t: m.Types[im.Type], code: wasm.Asm{0}})
			k.links[im.Name] = f
			return f
		case im.Kind == wasm.ExternFunc:
			return k.add(&fn{module: im.Module, name: im.Name, t: m.Types[im.Type]})
		case im.Name == "__memory_base":
			return k.base
		case im.Name == "__stack_pointer":
			return k.stack
		case im.Kind == wasm.ExternGlobal: // of its table, which is empty
			return k.global()
		case im.Kind == wasm.ExternTable:
			return &table{}
		}
		return nil // the memory
	})
}

// guestFunc returns an export of the guest side, or nil.
func (k *linker) guestFunc(name string) *fn {
	if i, ok := k.find(k.guest, wasm.ExternFunc, name); ok {
		return k.guest.funcs[i]
	}
	return nil
}

// stackBytes is the stack of the guest side.
const stackBytes = 32 << 10

// finishStart writes the function that gives the guest side its memory, once: from the
// allocator of the component, which may believe that it alone makes memory grow. The data is
// written by code, since its place is known only then; that place is not 0, which means none.
func (k *linker) finishStart(descriptors []byte) {
	f := k.start
	f.code = wasm.Asm{1, 1, byte(wasm.I32)}
	own := k.guestBytes()
	image := make([]byte, alignTo(own+uint32(len(descriptors)), 8))
	for _, d := range k.guest.Data {
		copy(image[uint32(k.constant(k.guest, d.Start).value):], k.guest.Bytes(d.Pos, d.End))
	}
	copy(image[own:], descriptors)
	size := alignTo(uint32(len(image)), 16) + stackBytes
	f.code.Index(wasm.OpGlobalGet, k.stack).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpReturn, wasm.OpEnd)
	f.code.I32(int32(size + 16))
	if k.memorySize != nil {
		f.code.Memory(wasm.OpMemorySize).Index(wasm.OpGlobalSet, k.before)
	}
	f.call(k.links["more"])
	f.code.I32(16).Op(wasm.OpI32Add).I32(-16).Op(wasm.OpI32And).Index(wasm.OpGlobalSet, k.base)
	f.code.Index(wasm.OpGlobalGet, k.base).I32(0).I32(int32(size)).Memory(wasm.OpMemoryFill)
	f.code.Index(wasm.OpGlobalGet, k.base).I32(int32(size)).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, k.stack)
	f.code.Index(wasm.OpGlobalGet, k.base).Index(wasm.OpLocalSet, 0)
	k.write(f, image)
	for _, name := range []string{"__wasm_apply_data_relocs", "__wasm_call_ctors"} {
		if init := k.guestFunc(name); init != nil {
			f.call(init)
		}
	}
	f.code.Op(wasm.OpEnd)
}

// guestBytes returns the size of the static data of the guest side, which its section dylink.0
// has in the subsection 1.
func (k *linker) guestBytes() uint32 {
	content := k.guest.Custom("dylink.0").Content()
	r := wasm.NewReader(content, 0, len(content))
	r.Byte()
	r.U32()
	return alignTo(r.U32(), 16)
}

// write makes f write bytes to the address in its local 0, in functions of a few kilobytes.
func (k *linker) write(f *fn, b []byte) {
	const most = 8 << 10
	k.hold(2 * len(b))
	for start := 0; start < len(b); start += most {
		piece := make([]byte, alignTo(uint32(min(most, len(b)-start)), 8))
		copy(piece, b[start:])
		w := k.add(&fn{name: f.name + ".data", t: rewrite.Signature("i:"), code: wasm.Asm{0}})
		for i := 0; i < len(piece); i += 8 {
			if v := binary.LittleEndian.Uint64(piece[i:]); v != 0 {
				w.code.Index(wasm.OpLocalGet, 0).I64(int64(v)).Access(wasm.OpI64Store, uint32(start+i))
			}
		}
		w.code.Op(wasm.OpEnd)
		f.code.Index(wasm.OpLocalGet, 0)
		f.call(w)
	}
}

// describeFunc returns starling_describe: it writes the description into new memory.
func (k *linker) describeFunc() *fn {
	if f := k.guestFunc(k.prefix + "describe"); f != nil && len(k.actions) == 0 {
		return f
	}
	doc := k.description()
	f := k.add(&fn{name: abi.ExportDescribe, t: rewrite.Signature(":I"), code: wasm.Asm{1, 1, byte(wasm.I32)}})
	f.code.I32(int32(alignTo(uint32(len(doc)), 8)))
	f.call(k.guestFunc("alloc"))
	f.code.Index(wasm.OpLocalSet, 0)
	k.write(f, doc)
	f.code.Index(wasm.OpLocalGet, 0).Op(wasm.OpI64ExtendI32U).I64(32).Op(wasm.OpI64Shl).I64(int64(len(doc))).Op(wasm.OpI64Or, wasm.OpEnd)
	return f
}

// numbered returns the number of v in list, to which it is added once: functions find by a number
// tools and calls between parts, allocators, and resources.
func numbered[T comparable](k *linker, list *[]T, v T) uint32 {
	k.spend(1 + len(*list))
	i := slices.Index(*list, v)
	if i < 0 {
		i = len(*list)
		k.hold(funcBytes) // with the code that compares the number
		*list = append(*list, v)
	}
	return uint32(i)
}

// called is a function that is called by descriptors, from a component instance.
type called struct {
	*function
	caller int // noCaller for a tool
}

// reallocOf returns the number of an allocator for the global realloc; 0 is none.
func (k *linker) reallocOf(f *coreFunc) int32 {
	if f == nil {
		return 0
	}
	r := k.resolve(f)
	if want := rewrite.Signature("iiii:i"); !k.same(r.t, want) {
		failf("", "malformed: realloc is %s, not %s", r.t, want)
	}
	return int32(numbered(k, &k.reallocs, r) + 1)
}

// mainRealloc is the allocator of the component itself, or nil.
func (k *linker) mainRealloc() *fn {
	for _, t := range k.tools {
		if f := t.f.opts.realloc; f != nil {
			return k.reallocs[k.reallocOf(f)-1]
		}
	}
	if k.main == nil {
		return nil
	}
	if k.plugin {
		return k.pluginRealloc()
	}
	for _, name := range []string{"cabi_realloc", "canonical_abi_realloc"} {
		if i, ok := k.find(k.main, wasm.ExternFunc, name); ok {
			return at(k.main.funcs, i, "function")
		}
	}
	return nil
}

// Prune returns a module without the imports that drop reports: a call of one of them traps. The
// imports of a module list everything it can do, and an interpreter has the imports that any of its
// programs may use. The module keeps its memory, data and exported functions, and the custom
// section keep. It must be one that this project built: Prune panics if it is malformed.
func Prune(b []byte, keep string, drop func(module, name string) bool) []byte {
	k := &linker{reading: &reading{budget: work.Trusted(context.Background())}, typeOf: map[string]uint32{}}
	p := &part{Module: k.decode(b, 0)}
	k.join(p, func(im wasm.Import) any {
		t := at(p.Types, im.Type, "type")
		if drop(im.Module, im.Name) {
			return k.trap(im.Name, t)
		}
		return k.add(&fn{module: im.Module, name: im.Name, t: t})
	})
	k.parts = append(k.parts, p)
	var exports []export
	for _, e := range p.Exports {
		switch e.Kind {
		case wasm.ExternFunc:
			exports = append(exports, export{e.Name, at(p.funcs, e.Index, "function")})
		case wasm.ExternMemory:
			exports = append(exports, export{e.Name, nil})
		}
	}
	return k.encode(exports, p.Custom(keep).Body)
}
