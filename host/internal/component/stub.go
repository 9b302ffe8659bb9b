package component

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
)

// stub makes the core function of a canonical definition.
func (k *linker) stub(f *coreFunc) *fn {
	switch f.kind {
	case builtinLower:
		return k.lower(f)
	case builtinNew, builtinRep, builtinDrop:
		return k.resourceStub(f)
	}
	if letters, ok := taskTypes[f.kind]; ok {
		return k.taskStub(f, rewrite.Signature(letters))
	}
	letters, ok := asyncTypes[f.kind]
	t := rewrite.Signature(letters)
	if !ok {
		return k.refused(t, buildFor02, "it has threads of its own (canonical definition %#x)", int(f.kind))
	}
	// The runtimes of asynchronous languages reach the others, and need them to wait.
	wait := k.add(&fn{name: "task.wait", t: t, code: wasm.Asm{0}})
	wait.code.I32(statusWait)
	wait.call(k.guestFunc("task_step"))
	wait.code.Op(wasm.OpUnreachable, wasm.OpEnd)
	return wait
}

// statusWait is what a task returns that waits for an event.
const statusWait = 2

const buildFor02 = "build for WASI 0.2, as by --target wasm32-wasip2"

// asyncTypes are the types of the builtins of WASI 0.3 that trap, as [rewrite.Signature] reads them.
var asyncTypes = map[builtin]string{
	0x05: ":", 0x06: "i:i", 0x0c: ":i", 0x0d: "i:", 0x0e: ":I", 0x15: ":I", 0x0f: "iii:i", 0x10: "iii:i", 0x16: "ii:i", 0x17: "ii:i",
	0x11: "i:i", 0x12: "i:i", 0x18: "i:i", 0x19: "i:i", 0x13: "i:", 0x14: "i:", 0x1a: "i:", 0x1b: "i:", 0x1c: "ii:i", 0x1d: "ii:", 0x1e: "i:", 0x20: "ii:i",
}

// refused returns a function that refuses the component if it can be reached.
func (k *linker) refused(t wasm.FuncType, hint, format string, args ...any) *fn {
	return k.add(&fn{t: t, refuse: refusal(hint, format, args...)})
}

// trap returns a function that traps.
func (k *linker) trap(name string, t wasm.FuncType) *fn {
	return k.add(&fn{name: name, t: t, code: wasm.Asm{0, byte(wasm.OpUnreachable), byte(wasm.OpEnd)}})
}

// enter begins a stub that calls the guest side: it makes sure that the component may call out,
// and that the guest side has its memory.
func (k *linker) enter(f *fn, owner int) {
	f.code = append(f.code, 0)
	f.code.Index(wasm.OpGlobalGet, k.busy).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpUnreachable, wasm.OpEnd)
	f.call(k.start)
	f.code.I32(int32(owner)).Index(wasm.OpGlobalSet, k.instance)
}

// pass ends a stub: it calls the target with the parameters, after those that are given.
func pass(f, target *fn, first ...int32) *fn {
	for _, v := range first {
		f.code.I32(v)
	}
	for i := range f.t.Params {
		f.code.Index(wasm.OpLocalGet, uint32(i))
	}
	f.call(target)
	f.code.Op(wasm.OpEnd)
	return f
}

// interfaces that have functions which take a handle that nobody can have, since nothing was
// opened.
var unreachable = []string{"wasi:filesystem/types@0.2#", "wasi:sockets/", "wasi:http/types@0.2#", "wasi:io/", "wasi:cli/terminal-"}

// versioned is the name of an interface with the part of its version that decides whether it is
// the same interface: wasi:io/streams@0.2 of wasi:io/streams@0.2.6.
func versioned(iface string) string {
	name, version, ok := strings.Cut(iface, "@")
	if !ok {
		return iface
	}
	if strings.HasPrefix(name, "wasi:config/") && strings.HasPrefix(version, "0.2.") {
		return name + "@0.2" // it never left the drafts
	}
	if strings.Contains(version, "-") {
		return iface
	}
	numbers := strings.SplitN(version, ".", 3)
	switch {
	case len(numbers) < 3:
		return iface
	case numbers[0] != "0":
		return name + "@" + numbers[0]
	case numbers[1] != "0":
		return name + "@0." + numbers[1]
	}
	return iface
}

// provided returns the function of the guest side that an import is, or why there is none.
func (k *linker) provided(iface, name string, t wasm.FuncType) *fn {
	k.text(iface)
	full := k.text(versioned(iface) + "#" + name)
	f := k.guestFunc(full)
	switch {
	case f != nil && k.same(f.t, t):
		return f
	case f != nil:
		return k.refused(t, buildFor02, "%s is %s here, and %s in the component", full, f.t, t)
	case strings.HasPrefix(iface, "wasi:") && slices.ContainsFunc(unreachable, func(p string) bool { return strings.HasPrefix(full, p) }) && strings.Contains(full, "@0.2#"):
		return k.trap(full, t)
	case iface == "":
		return k.refused(t, mayImport, "it imports the function %q, which this host does not have", name)
	case strings.HasPrefix(iface, "wasi:") && versioned(iface) != strings.Split(iface, "@")[0]+"@0.2":
		return k.refused(t, buildFor02, "it imports %s, and this host has WASI 0.2", iface)
	}
	return k.refused(t, mayImport, "it imports %s#%s, which this host does not have", iface, name)
}

const mayImport = "a component may import WASI 0.2: wasi:cli, clocks, config, filesystem, http (outgoing), io, random and sockets"

// lower makes the core function of a component-level function: of the host, or of another part.
func (k *linker) lower(c *coreFunc) *fn {
	t := c.fn.t.core(true)
	k.text(c.fn.iface)
	k.text(c.fn.name)
	switch {
	case c.opts.async:
		return k.refused(t, buildFor02, "it calls %s asynchronously", c.fn)
	case c.opts.encoding != 0:
		return k.refused(t, "build it with strings in UTF-8", "it passes strings to %s that are not UTF-8", c.fn)
	case c.fn.lift != nil:
		return k.between(c, t)
	}
	target := k.provided(c.fn.iface, c.fn.name, t)
	if target.part == nil {
		return target
	}
	f := k.add(&fn{name: c.fn.String(), t: t})
	k.enter(f, c.owner)
	f.code.I32(k.reallocOf(c.opts.realloc)).Index(wasm.OpGlobalSet, k.realloc)
	return pass(f, target)
}

// between makes a call from one part of the component to another.
func (k *linker) between(c *coreFunc, t wasm.FuncType) *fn {
	to := c.fn
	if to.opts.async || to.t.async {
		return k.refused(t, buildFor02, "its parts call each other asynchronously")
	}
	for v, most := range map[*valueType]int{to.t.params: maxFlatParams, to.t.result: maxFlatResults} {
		if v != nil && (v.odd != "" || v.text || len(v.flat) > most) {
			// Each of the two needs a memory, and there is one. So the other one's is empty: it stands
			// for WASI in a build step, and would trap.
			return k.trap("between", t)
		}
	}
	for i := c.owner; i >= 0; i = k.parents[i] {
		if i == to.owner { // nothing enters an instance that is being called
			return k.trap("reentrance", t)
		}
	}
	f := k.add(&fn{name: "between", t: t})
	k.enter(f, c.owner)
	k.push(f)
	for _, slot := range k.context { // the callee has its own
		f.code.Index(wasm.OpGlobalGet, slot).I32(0).Index(wasm.OpGlobalSet, slot)
	}
	f.code.I32(int32(numbered(k, &k.called, called{to, c.owner}))).Index(wasm.OpGlobalGet, k.stack)
	f.code.Index(wasm.OpGlobalGet, k.stack).I32(8 * (slots - 1)).Op(wasm.OpI32Add)
	f.call(k.guestFunc("pass"))
	for i := range k.context {
		f.code.Index(wasm.OpGlobalSet, k.context[len(k.context)-1-i])
	}
	for _, r := range t.Results {
		f.code.Index(wasm.OpGlobalGet, k.stack).Access(loadOf[r], 8*(slots-1))
	}
	k.pop(f)
	f.code.Op(wasm.OpEnd)
	return f
}

// slots are the words of a call on the stack of the guest side: the parameters, and in the last
// one the result.
const slots = maxFlatParams + 2

// push writes the parameters of f to slots, and pop gives them back.
func (k *linker) push(f *fn) {
	f.code.Index(wasm.OpGlobalGet, k.stack).I32(8*slots).Op(wasm.OpI32Sub).Index(wasm.OpGlobalSet, k.stack)
	for i, p := range f.t.Params {
		f.code.Index(wasm.OpGlobalGet, k.stack).Index(wasm.OpLocalGet, uint32(i)).Access(storeOf[p], uint32(8*i))
	}
}

func (k *linker) pop(f *fn) {
	f.code.Index(wasm.OpGlobalGet, k.stack).I32(8*slots).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, k.stack)
}

var (
	storeOf = map[wasm.ValType]wasm.Op{wasm.I32: wasm.OpI32Store, wasm.I64: wasm.OpI64Store, wasm.F32: wasm.OpF32Store, wasm.F64: wasm.OpF64Store}
	loadOf  = map[wasm.ValType]wasm.Op{wasm.I32: wasm.OpI32Load, wasm.I64: wasm.OpI64Load, wasm.F32: wasm.OpF32Load, wasm.F64: wasm.OpF64Load}
)

// resourceStub makes a builtin of a resource. The guest side has the tables of handles.
func (k *linker) resourceStub(c *coreFunc) *fn {
	t, name := rewrite.Signature("i:i"), map[builtin]string{builtinNew: "resource_new", builtinRep: "resource_rep", builtinDrop: "resource_drop"}[c.kind]
	if c.kind == builtinDrop {
		t = rewrite.Signature("i:")
	}
	switch {
	case c.res.own:
		f := k.add(&fn{name: name, t: t})
		if c.kind == builtinRep { // which is not a call
			f.code = append(f.code, 0)
		} else {
			k.enter(f, c.owner)
		}
		return pass(f, k.guestFunc(name), int32(c.owner), int32(numbered(k, &k.resources, c.res)))
	case c.kind != builtinDrop:
		failf("", "malformed: %s of a resource that is imported", name)
	}
	target := k.provided(c.res.iface, "[resource-drop]"+c.res.name, t)
	if target.part == nil {
		return target
	}
	f := k.add(&fn{name: target.name, t: t})
	k.enter(f, c.owner)
	return pass(f, target)
}

// taskTypes are the types of the builtins of WASI 0.3 that a task which never waits has, as
// [rewrite.Signature] reads them. That of task.return depends on the result.
var taskTypes = map[builtin]string{
	builtinReturn: "", builtinContextGet: ":i", builtinContextSet: "i:", builtinSetNew: ":i", builtinSetPoll: "ii:i",
	0x22: "i:", 0x23: "ii:", // waitable-set.drop and waitable.join
	0x24: ":", 0x25: ":", // backpressure.inc and .dec: no second call would have to wait
}

// taskStub makes a builtin of [taskTypes].
func (k *linker) taskStub(c *coreFunc, t wasm.FuncType) *fn {
	f := &fn{name: "task", t: t, code: wasm.Asm{0}}
	switch c.kind {
	case builtinContextGet:
		f.code.Index(wasm.OpGlobalGet, at(k.context, c.slot, "context"))
	case builtinContextSet:
		f.code.Index(wasm.OpLocalGet, 0).Index(wasm.OpGlobalSet, at(k.context, c.slot, "context"))
	case builtinSetNew:
		f.code.I32(1)
	case builtinSetPoll: // nothing has happened
		f.code.I32(0)
	case builtinReturn:
		if c.result != nil {
			f.t.Params = c.result.flat
		}
		if len(f.t.Params) > maxFlatParams {
			f.t.Params = flat{wasm.I32}
		}
		f.code = nil
		k.enter(f, c.owner)
		k.push(f)
		f.code.Index(wasm.OpGlobalGet, k.stack)
		returned := cmp.Or(k.guestFunc(k.prefix+"task_return"), k.guestFunc("task_return"))
		f.call(returned)
		k.pop(f)
	}
	f.code.Op(wasm.OpEnd)
	return k.add(f)
}

// finishLinks writes the functions that the guest side imports.
func (k *linker) finishLinks() {
	main := k.mainRealloc()
	for i := 0; i < len(k.called); i++ { // which may need further functions
		f := k.called[i]
		k.checkLift(f.function)
		k.reallocOf(f.opts.realloc)
		for _, c := range []*coreFunc{f.lift, f.opts.post, f.opts.callback} {
			if c != nil {
				k.resolve(c)
			}
		}
	}
	for i := 0; i < len(k.resources); i++ {
		if d := k.resources[i].dtor; d != nil {
			k.resolve(d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.links)) {
		f := k.links[name]
		switch name {
		case "more":
			if main == nil {
				f.code.Index(wasm.OpLocalGet, 0).I32(wasm.PageSize - 1).Op(wasm.OpI32Add).I32(16).Op(wasm.OpI32ShrU).Memory(wasm.OpMemoryGrow)
				f.code.I32(16).Op(wasm.OpI32Shl)
				break
			}
			f.code.I32(0).I32(0).I32(16).Index(wasm.OpLocalGet, 0)
			k.allocate(f, main)
		case "realloc":
			for i, r := range k.reallocs {
				f.code.Index(wasm.OpGlobalGet, k.realloc).I32(int32(i+1)).Op(wasm.OpI32Eq).Block(wasm.OpIf, wasm.BlockEmpty)
				for p := range uint32(4) {
					f.code.Index(wasm.OpLocalGet, p)
				}
				k.allocate(f, r)
				f.code.Op(wasm.OpReturn, wasm.OpEnd)
			}
			f.code.Op(wasm.OpUnreachable)
		case "instance":
			f.code.Index(wasm.OpGlobalGet, k.instance)
		case "call", "post", "arg_realloc":
			for i, c := range k.called {
				f.code.Index(wasm.OpLocalGet, 0).I32(int32(i)).Op(wasm.OpI32Eq).Block(wasm.OpIf, wasm.BlockEmpty)
				switch name {
				case "call":
					k.callOf(f, c.function)
				case "post":
					k.postOf(f, c.function)
				default:
					if c.opts.realloc == nil {
						f.code.Op(wasm.OpUnreachable)
						break
					}
					f.code.I32(0).I32(0).Index(wasm.OpLocalGet, 1).Index(wasm.OpLocalGet, 2)
					k.allocate(f, k.resolve(c.opts.realloc))
				}
				f.code.Op(wasm.OpReturn, wasm.OpEnd)
			}
			f.code.Op(wasm.OpUnreachable)
		case "dtor":
			for n, r := range k.resources {
				if r.dtor == nil {
					continue
				}
				f.code.Index(wasm.OpLocalGet, 0).I32(int32(n)).Op(wasm.OpI32Eq).Block(wasm.OpIf, wasm.BlockEmpty).Index(wasm.OpLocalGet, 1)
				f.call(k.resolve(r.dtor))
				f.code.Op(wasm.OpEnd)
			}
		case "descriptors":
			f.code.Index(wasm.OpGlobalGet, k.base).I32(int32(k.guestBytes())).Op(wasm.OpI32Add)
		default:
			panic("component: the guest side imports link." + name)
		}
		f.code.Op(wasm.OpEnd)
	}
}

// allocate appends a call of an allocator. It has a context of its own, and since nothing else
// runs meanwhile, one place is enough for that of its caller.
func (k *linker) allocate(f, target *fn) {
	for i, slot := range k.context {
		f.code.Index(wasm.OpGlobalGet, slot).Index(wasm.OpGlobalSet, k.callers[i]).I32(0).Index(wasm.OpGlobalSet, slot)
	}
	k.alone(f, target)
	for i, slot := range k.context {
		f.code.Index(wasm.OpGlobalGet, k.callers[i]).Index(wasm.OpGlobalSet, slot)
	}
}

// alone appends a call of a function that may not call out: the component does not expect it.
func (k *linker) alone(f, target *fn) {
	f.code.I32(1).Index(wasm.OpGlobalSet, k.busy)
	f.call(target)
	f.code.I32(0).Index(wasm.OpGlobalSet, k.busy)
}

// checkLift refuses a lifted function whose core function has another type.
func (k *linker) checkLift(f *function) {
	if f.opts.encoding != 0 {
		failf("build it with strings in UTF-8", "it exports a function with strings that are not UTF-8")
	}
	if f.opts.async {
		if f.opts.callback == nil {
			failf("build it with the callback ABI, or for WASI 0.2", "it exports an asynchronous function that has a stack of its own")
		}
		return
	}
	if got, want := k.resolve(f.lift).t, f.t.core(false); !k.same(got, want) {
		failf("", "malformed: an exported function is %s, not %s", got, want)
	}
}

// callOf appends the call of a function: parameters from slots at local 1, the result to the slot
// at local 2.
func (k *linker) callOf(f *fn, c *function) {
	target := k.resolve(c.lift)
	if len(target.t.Results) > 0 && !c.opts.async {
		f.code.Index(wasm.OpLocalGet, 2)
	}
	for i, p := range target.t.Params {
		f.code.Index(wasm.OpLocalGet, 1).Access(loadOf[p], uint32(8*i))
	}
	f.call(target)
	switch {
	case c.opts.async: // a task may yield, but what it would wait for never happens
		again, want := k.resolve(c.opts.callback), rewrite.Signature("iii:i")
		if !k.same(again.t, want) || len(target.t.Results) != 1 || target.t.Results[0] != wasm.I32 {
			failf("", "malformed: an asynchronous function is %s, and its callback %s", target.t, again.t)
		}
		f.code.Index(wasm.OpLocalSet, 0).Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpLocalGet, 0)
		f.call(k.guestFunc("task_step"))
		f.code.Block(wasm.OpIf, wasm.BlockEmpty).I32(0).I32(0).I32(0)
		f.call(again)
		f.code.Index(wasm.OpLocalSet, 0).Index(wasm.OpBr, 1).Op(wasm.OpEnd, wasm.OpEnd)
	case len(target.t.Results) > 0:
		f.code.Access(storeOf[target.t.Results[0]], 0)
	}
}

// postOf appends the call of a function's post-return, which gets what the function returned.
func (k *linker) postOf(f *fn, c *function) {
	if c.opts.post == nil {
		return
	}
	target := k.resolve(c.opts.post)
	if got, want := target.t, (wasm.FuncType{Params: k.resolve(c.lift).t.Results}); !k.same(got, want) {
		failf("", "malformed: a post-return is %s, not %s", got, want)
	}
	for _, p := range target.t.Params {
		f.code.Index(wasm.OpLocalGet, 1).Access(loadOf[p], 0)
	}
	k.alone(f, target)
}
