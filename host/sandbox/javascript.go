//go:build js

package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall/js"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// On js the engine is the browser's, or Node's: the rewritten module becomes a
// WebAssembly.Module beside this program. A call of the guest is a call from Go to
// JavaScript, and an import a call back to Go within it, on the same goroutine.

// explained: the engine has the same text for different traps.
const explained = true

var webAssembly = js.Global().Get("WebAssembly")

// engineWorks reports whether there is an engine.
func engineWorks(_ context.Context, c Config) error {
	switch {
	case c.Interpreter || c.Machine || c.CacheDir != "" || c.Read != nil:
		return errors.New("sandbox: on js the engine is the one of JavaScript, which keeps no code")
	case webAssembly.IsUndefined():
		return errors.New("sandbox: there is no WebAssembly here")
	}
	return nil
}

// compile fails: the engine does not give its code to others.
func compile(context.Context, int, []byte, []byte, string) error {
	return hostFailed(errors.New("on js no code is kept"))
}

// caught calls f and returns what JavaScript threw in it.
func caught[T any](f func() T) (result T, err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case js.Error:
			err = v
		default:
			panic(v)
		}
	}()
	return f(), nil
}

// jsCode is a compiled module and its bridge.
type jsCode struct {
	bridge                *rewrite.Bridge
	before, module, after js.Value
	imports               []func(*session, []uint64) // in the order of the bridge
}

func compiled(ctx context.Context, _ *Engine, p *Prepared) (executable, error) {
	bridge, err := rewrite.NewBridge(work.For(ctx, len(p.Wasm)), p.Wasm)
	if err != nil {
		return nil, err
	}
	c := &jsCode{bridge: bridge}
	for _, im := range bridge.Imports {
		c.imports = append(c.imports, answering(im))
	}
	for _, m := range []struct {
		to   *js.Value
		wasm []byte
	}{{&c.module, p.Wasm}, {&c.before, bridge.Before}, {&c.after, bridge.After}} {
		b := js.Global().Get("Uint8Array").New(len(m.wasm))
		js.CopyBytesToJS(b, m.wasm)
		if *m.to, err = caught(func() js.Value { return webAssembly.Get("Module").New(b) }); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *jsCode) close(context.Context) error {
	*c = jsCode{}
	return nil
}

// jsModule is an instance.
type jsModule struct {
	code    *jsCode
	i       *instance
	after   js.Value // the exports of the bridge's second module
	mail    js.Value // Uint8Array
	linear  js.Value // WebAssembly.Memory, or undefined
	buffer  js.Value // of linear, when bytes was made
	bytes   js.Value // Uint8Array
	call    js.Func
	thrown  any                   // the value with which an import panicked, which ends the guest
	scratch [8 * maxCrossing]byte // the content of mail
	stack   [maxCrossing]uint64   // the same as numbers
	globals map[string]*jsGlobal  // that were asked for
}

// maxCrossing bounds the parameters of an import; path_open has nine.
const maxCrossing = 16

func (c *jsCode) instantiate(i *instance) (running, error) {
	m := &jsModule{code: c, i: i, globals: map[string]*jsGlobal{}}
	m.call = js.FuncOf(m.imported)
	object := js.Global().Get("Object")
	instance := func(module js.Value, imports js.Value) (js.Value, error) {
		return caught(func() js.Value { return webAssembly.Get("Instance").New(module, imports).Get("exports") })
	}
	host := object.New()
	host.Set(rewrite.BridgeHost, map[string]any{rewrite.BridgeCall: m.call})
	before, err := instance(c.before, host)
	if err != nil {
		m.close()
		return nil, err
	}
	imports := object.New()
	for n, im := range c.bridge.Imports {
		if imports.Get(im.Module).IsUndefined() {
			imports.Set(im.Module, object.New())
		}
		imports.Get(im.Module).Set(im.Name, before.Get(strconv.Itoa(n)))
	}
	guest, err := instance(c.module, imports)
	if err == nil {
		sides := object.New()
		sides.Set(rewrite.BridgeBefore, before)
		sides.Set(rewrite.BridgeGuest, guest)
		m.after, err = instance(c.after, sides)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	m.mail = js.Global().Get("Uint8Array").New(before.Get(rewrite.BridgeMail).Get("buffer"))
	m.linear = guest.Get("memory")
	return m, nil
}

func (m *jsModule) close() { m.call.Release() }

// receive returns the first n numbers in the mail.
func (m *jsModule) receive(n int) []uint64 {
	js.CopyBytesToGo(m.scratch[:8*n], m.mail)
	for i := range n {
		m.stack[i] = binary.LittleEndian.Uint64(m.scratch[8*i:])
	}
	return m.stack[:n]
}

func (m *jsModule) send(numbers []uint64) {
	for i, v := range numbers {
		binary.LittleEndian.PutUint64(m.scratch[8*i:], v)
	}
	js.CopyBytesToJS(m.mail, m.scratch[:8*len(numbers)])
}

// imported answers an import. A panic must not leave a callback: it is kept for
// function.CallWithStack, and the bridge traps.
func (m *jsModule) imported(_ js.Value, args []js.Value) (ended any) {
	defer func() {
		if m.thrown = recover(); m.thrown != nil {
			ended = 1
		}
	}()
	n := args[0].Int()
	im := m.code.bridge.Imports[n]
	var stack [maxCrossing]uint64 // not m.stack, which the answer uses
	copy(stack[:], m.receive(len(im.Type.Params)))
	m.code.imports[n](&m.i.session, stack[:max(len(im.Type.Params), 1)])
	m.send(stack[:len(im.Type.Results)])
	return 0
}

// jsFunction is an export.
type jsFunction struct {
	m    *jsModule
	call js.Value
}

func (m *jsModule) function(name string) function {
	return &jsFunction{m, m.after.Get("call" + strconv.Itoa(slices.Index(m.code.bridge.Functions, name)))}
}

// CallWithStack calls the export. The error is the value with which an import panicked, or the trap
// in the words of wazero.
func (f *jsFunction) CallWithStack(_ context.Context, stack []uint64) error {
	f.m.thrown = nil
	f.m.send(stack)
	_, err := caught(func() js.Value { return f.call.Invoke() })
	if err == nil {
		copy(stack, f.m.receive(len(stack)))
		return nil
	}
	switch ended := f.m.thrown.(type) {
	case nil:
		return f.m.trap(err.(js.Error))
	case error:
		return ended
	default:
		panic(ended)
	}
}

// trapTexts maps the words of V8, SpiderMonkey and JavaScriptCore for the traps that do
// not explain themselves, in lower case, to wazero's.
var trapTexts = []struct{ part, trap string }{
	{"unreachable", "unreachable"},
	{"by zero", "integer divide by zero"},
	{"unrepresentable", "integer overflow"}, // of a quotient, or of a float that is truncated
	{"overflow", "integer overflow"},
	{"out of bounds trunc", "integer overflow"},
	{"signature", "indirect call type mismatch"},
	{"out of bounds", "out of bounds memory access"},
}

// trap is the error of a guest that trapped.
func (m *jsModule) trap(thrown js.Error) error {
	if g := m.global(rewrite.GlobalTrap); g != nil {
		switch g.Get() {
		case rewrite.TrapNotNumber:
			return errors.New("invalid conversion to integer")
		case rewrite.TrapNoEntry:
			return errors.New("invalid table access")
		case rewrite.TrapNoMemory:
			return errNoMemory
		}
	}
	switch {
	case thrown.Value.InstanceOf(js.Global().Get("RangeError")), isInternalError(thrown.Value):
		return ErrTooDeep
	case !thrown.Value.InstanceOf(webAssembly.Get("RuntimeError")):
		return thrown
	}
	text := strings.ToLower(thrown.Value.Get("message").String())
	for _, t := range trapTexts {
		if strings.Contains(text, t.part) {
			return errors.New(t.trap)
		}
	}
	return thrown
}

// isInternalError: SpiderMonkey's error for too much recursion has its own type.
func isInternalError(v js.Value) bool {
	t := js.Global().Get("InternalError")
	return t.Type() == js.TypeFunction && v.InstanceOf(t)
}

var errNoMemory = errors.New("the engine has no memory for pages that the guest may have")

// jsGlobal is an exported mutable global, by the bridge's functions for it.
type jsGlobal struct {
	m        *jsModule
	t        wasm.ValType
	get, set js.Value
}

func (m *jsModule) global(name string) global {
	if g, ok := m.globals[name]; ok {
		return g
	}
	n := slices.Index(m.code.bridge.Globals, name)
	if n < 0 {
		return nil
	}
	number := strconv.Itoa(n)
	g := &jsGlobal{m, m.code.bridge.Types[n], m.after.Get("get" + number), m.after.Get("set" + number)}
	m.globals[name] = g
	return g
}

func (g *jsGlobal) Type() byte { return byte(g.t) }

func (g *jsGlobal) Get() uint64 {
	g.get.Invoke()
	return g.m.receive(1)[0]
}

func (g *jsGlobal) Set(v uint64) {
	g.m.send([]uint64{v})
	g.set.Invoke()
}

// memory returns the memory of the instance, which has its own methods because a grown
// memory has another buffer.
func (m *jsModule) memory() memory { return m }

func (m *jsModule) current() js.Value {
	if buffer := m.linear.Get("buffer"); !buffer.Equal(m.buffer) {
		m.buffer, m.bytes = buffer, js.Global().Get("Uint8Array").New(buffer)
	}
	return m.bytes
}

func (m *jsModule) Size() uint32 {
	if m.linear.IsUndefined() {
		return 0
	}
	return uint32(m.current().Get("byteLength").Int())
}

func (m *jsModule) Grow(pages uint32) (uint32, bool) {
	before, err := caught(func() js.Value { return m.linear.Call("grow", pages) })
	if err != nil {
		return 0, false
	}
	return uint32(before.Int()), true
}

func (m *jsModule) has(offset, length uint32) bool {
	return uint64(offset)+uint64(length) <= uint64(m.Size())
}

func (m *jsModule) Write(offset uint32, b []byte) bool {
	if !m.has(offset, uint32(len(b))) {
		return false
	}
	if len(b) > 0 {
		js.CopyBytesToJS(m.bytes.Call("subarray", offset, offset+uint32(len(b))), b)
	}
	return true
}

func (m *jsModule) Read(offset, length uint32) ([]byte, bool) {
	if !m.has(offset, length) {
		return nil, false
	}
	b := make([]byte, length)
	if length > 0 {
		js.CopyBytesToGo(b, m.bytes.Call("subarray", offset, offset+length))
	}
	return b, true
}

// shrink fails: no instance is used twice here.
func (*instance) shrink(uint32) error { return errNoShrink }

// observed is for the machine, which is not part of this program on js.
func (*Engine) observed(*instance, Call) {}
