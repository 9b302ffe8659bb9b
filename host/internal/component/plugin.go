package component

import (
	"bytes"
	"slices"
	"strings"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
)

// pluginHost is the module of the functions that Extism has for its plug-ins.
const pluginHost = "extism:host/env"

// Needed reports whether bytes must be linked before the gate may see them: they are a component,
// or look like a plug-in for Extism. It reads nothing but the frame of a module, since every module
// that is loaded or uploaded comes by here.
func Needed(b []byte) bool {
	if wasm.IsComponent(b) {
		return true
	}
	m, err := wasm.Split(b)
	if err != nil {
		return false
	}
	imports := m.Section(wasm.SectionImport)
	return imports != nil && bytes.Contains(imports.Body, []byte(pluginHost))
}

// readPlugin makes a plug-in the only part, and its exported functions tools. Each takes its
// input from the host, and returns 0 if it succeeds. It reports whether b is a plug-in.
func (k *linker) readPlugin(b []byte) bool {
	k.plugin, k.prefix = true, "extism_"
	inst := &coreInstance{module: b}
	k.reading.parts, k.exports = []*coreInstance{inst}, &instance{}
	m := k.decode(b, 0)
	if !slices.ContainsFunc(m.Imports, func(im wasm.Import) bool { return im.Module == pluginHost }) {
		return false
	}
	input := newType(valueType{kind: kindOption, elem: newType(valueType{kind: kindString})})
	document := newType(valueType{kind: kindRecord, items: []field{{"input", input}}})
	nothing := newType(valueType{kind: kindRecord})
	taken := map[string]bool{}
	for _, im := range m.Imports {
		k.hold(itemBytes)
		k.imports = append(k.imports, k.text(im.Module+"#"+im.Name))
	}
	for _, e := range m.Exports {
		k.text(e.Name)
		k.hold(funcBytes)
		if e.Kind != wasm.ExternFunc || int(e.Index) < m.NumImportedFuncs() || slices.Contains(pluginStarts, e.Name) || strings.HasPrefix(e.Name, "asyncify_") {
			continue
		}
		t := at(m.Types, at(m.Funcs, e.Index-uint32(m.NumImportedFuncs()), "function"), "type")
		name := toolName(e.Name)
		if taken[name] || !k.same(t, rewrite.Signature(":i")) && !k.same(t, rewrite.Signature(":")) {
			continue
		}
		taken[name] = true
		f := &function{name: e.Name, t: &funcType{params: nothing}, lift: &coreFunc{kind: builtinExport, export: coreItem{kind: e.Kind, inst: inst, name: e.Name}}}
		if len(t.Results) > 0 {
			f.t.result = newType(valueType{kind: kindS32})
		}
		k.exports.names = append(k.exports.names, e.Name)
		k.tools = append(k.tools, &tool{name: name, doc: e.Name, f: f, input: document})
	}
	for _, pair := range [][2]string{{"describe", "call"}, {"list_tools", "call_tool"}} { // of hyper-mcp, two versions
		list := slices.IndexFunc(k.tools, func(t *tool) bool { return t.f.name == pair[0] && t.f.t.result != nil })
		call := slices.IndexFunc(k.tools, func(t *tool) bool { return t.f.name == pair[1] && t.f.t.result != nil })
		if list >= 0 && call >= 0 {
			k.tools, k.prefix = []*tool{k.tools[list], k.tools[call]}, "mcp_"
			break
		}
	}
	for _, t := range k.tools {
		numbered(k, &k.called, called{t.f, noCaller})
	}
	// Without a malloc the guest side makes memory grow, and Go believes that it alone does.
	exported := func(name string) bool {
		return slices.ContainsFunc(m.Exports, func(e wasm.Export) bool { return e.Name == name })
	}
	if !exported("malloc") && slices.ContainsFunc(m.Sections, func(s wasm.Section) bool { return s.Name == "go:buildid" }) {
		failf("build it with TinyGo", "it is built by Go, which cannot share its memory")
	}
	if len(k.tools) == 0 && exported("_start") {
		failf("build it as a library (-buildmode=c-shared, or a reactor), with a function that returns an i32", "it is a program, whose _start cannot be called for each input")
	}
	if len(k.tools) == 0 {
		failf("export a function without parameters that returns an i32", "it exports no function that Extism could call")
	}
	return true
}

// notifications are functions of hyper-mcp that return nothing that matters, and do nothing here.
var notifications = []string{"notify_logging_message", "notify_progress", "notify_prompt_list_changed", "notify_resource_list_changed", "notify_resource_updated", "notify_tool_list_changed"}

// pluginStarts are functions that start a plug-in, or end it.
var pluginStarts = []string{"_initialize", "__wasm_call_ctors", "_start", "hs_init", "hs_exit", "malloc"}

// pluginArgument returns a function of Extism, which the guest side has, or one of the host.
func (k *linker) pluginArgument(p *part, im wasm.Import) any {
	if im.Kind != wasm.ExternFunc {
		failf("build it for Extism 1.0 or later", "it imports %q %q, which is not a function", im.Module, im.Name)
	}
	t := at(p.Types, im.Type, "type")
	if im.Module == "extism:host/user" {
		if slices.Contains(notifications, im.Name) {
			f := &fn{name: im.Name, t: t, code: wasm.Asm{0}}
			for _, r := range t.Results {
				if r != wasm.I64 {
					return k.refused(t, "", "it imports %s#%s as %s", im.Module, im.Name, t)
				}
				f.code.I64(0)
			}
			f.code.Op(wasm.OpEnd)
			return k.add(f)
		}
		return k.refused(t, "run a plug-in without them", "it needs functions of the program that embeds it (%s %s)", im.Module, im.Name)
	}
	if im.Module != pluginHost {
		k.spend(len(k.fns))
		for _, f := range k.fns { // the gate knows which the host has
			if f.module == im.Module && f.name == im.Name && k.same(f.t, t) {
				return f
			}
		}
		return k.add(&fn{module: im.Module, name: im.Name, t: t})
	}
	target := k.guestFunc(pluginHost + "#" + im.Name)
	if target == nil {
		return k.refused(t, "", "it imports %s#%s, which this host does not have", pluginHost, im.Name)
	}
	f := k.add(&fn{name: pluginHost + "#" + im.Name, t: target.t, code: wasm.Asm{0}})
	f.call(k.start)
	return pass(f, target)
}

// pluginFunc returns an exported function of the plug-in, or nil.
func (k *linker) pluginFunc(name, t string) *fn {
	if i, ok := k.find(k.main, wasm.ExternFunc, name); ok {
		if f := at(k.main.funcs, i, "function"); k.same(f.t, rewrite.Signature(t)) {
			return f
		}
	}
	return nil
}

// startPlugin calls what starts the plug-in's language runtime, as Extism does.
func (k *linker) startPlugin(starts *fn) {
	if k.main == nil {
		return
	}
	if k.pluginFunc("malloc", "i:i") == nil {
		k.hideMemory()
	}
	for _, name := range []string{"_initialize", "__wasm_call_ctors"} {
		if f := k.pluginFunc(name, ":"); f != nil {
			starts.call(f)
			break
		}
	}
	if f := k.pluginFunc("hs_init", "ii:"); f != nil {
		starts.code.I32(0).I32(0)
		starts.call(f)
	}
}

// pluginRealloc returns an allocator that asks the plug-in's malloc, or nil.
func (k *linker) pluginRealloc() *fn {
	malloc := k.pluginFunc("malloc", "i:i")
	if malloc == nil {
		return nil
	}
	f := k.add(&fn{name: "malloc", t: rewrite.Signature("iiii:i"), code: wasm.Asm{0}})
	f.code.Index(wasm.OpLocalGet, 3)
	f.call(malloc)
	f.code.Op(wasm.OpEnd)
	return f
}

// hideMemory makes the functions that a plug-in without malloc asks for the size of memory and for
// more. What begins its heap there must not find the memory that the guest side has taken: so the
// size is the one before, until the plug-in makes memory grow itself.
func (k *linker) hideMemory() {
	k.before = k.global()
	k.memorySize = k.add(&fn{name: "memory.size", t: rewrite.Signature(":i"), code: wasm.Asm{0}})
	k.memorySize.code.Index(wasm.OpGlobalGet, k.before).Op(wasm.OpI32Eqz).Block(wasm.OpIf, wasm.BlockEmpty).Memory(wasm.OpMemorySize).Op(wasm.OpReturn, wasm.OpEnd)
	k.memorySize.code.Index(wasm.OpGlobalGet, k.before).Op(wasm.OpEnd)
	k.memoryGrow = k.add(&fn{name: "memory.grow", t: rewrite.Signature("i:i"), code: wasm.Asm{0}})
	k.memoryGrow.code.I32(0).Index(wasm.OpGlobalSet, k.before).Index(wasm.OpLocalGet, 0).Memory(wasm.OpMemoryGrow).Op(wasm.OpEnd)
}

// memoryStub returns the function that stands for an instruction of a plug-in, or nil.
func (k *linker) memoryStub(p *part, op wasm.Op) *fn {
	switch {
	case !k.plugin || p != k.main:
		return nil
	case op == wasm.OpMemorySize:
		return k.memorySize
	case op == wasm.OpMemoryGrow:
		return k.memoryGrow
	}
	return nil
}
