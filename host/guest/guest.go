package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// Options configure the tools of a module.
type Options struct {
	// Limits bound every call. Zero fields take the value of
	// sandbox.DefaultLimits.
	Limits sandbox.Limits
	// Egress is the client for the network. Nil allows nothing.
	Egress *egress.Client
	// Allow lists the hosts that Egress allows, for information in the record. A replay
	// takes it from the record.
	Allow []string
	// Name is the module's file name. A WASI command is named after it.
	Name string
	// New applies the bounds on subschemas. Recorded modules may predate the bounds, and
	// must still replay.
	New bool
}

// Engine loads modules, into this process or into processes of their own, and Sandbox is a module
// that it loaded.
type (
	Engine  = sandbox.Loader
	Sandbox = sandbox.Loaded
)

// Linker makes a core module of a component or a plug-in for Extism. It calls room with the size of
// the module before it keeps it, and returns its error.
type Linker interface {
	Link(ctx context.Context, component []byte, room func(bytes int) error) (module []byte, err error)
}

// Observable is an engine that links components where it loads modules, and whose calls can be
// observed.
type Observable interface {
	sandbox.Observable
	Linker
}

// Inline returns the engine that executes modules in this process.
func Inline(e *sandbox.Engine) Observable { return inline{sandbox.Inline(e)} }

type inline struct{ sandbox.Observable }

// Link implements [Linker] in this process, within the budget of the component's size.
func (inline) Link(ctx context.Context, b []byte, room func(bytes int) error) ([]byte, error) {
	module, err := component.Link(work.For(ctx, len(b)), b)
	return module, cmp.Or(err, room(len(module)))
}

// Module is a loaded module and the tools in it.
type Module struct {
	sandbox     Sandbox
	size        int
	imports     imports
	allow       []string
	tools       []*Tool
	interpreted bool
}

// Load checks, rewrites and compiles a module and asks it for its description. The error is
// a *rewrite.Refusal if the module is refused, and a *[DescriptionError] if its description
// is.
func Load(ctx context.Context, engine Engine, wasm []byte, o Options) (*Module, error) {
	side, limits, err := sidecarOf(wasm, o.Limits)
	if err != nil {
		return nil, err
	}
	compiled := registry.Doing(ctx, strings.TrimSpace("compiling "+o.Name))
	loaded, err := engine.Load(ctx, wasm, limits)
	compiled()
	if err != nil {
		return nil, err
	}
	if o.Egress == nil {
		o.Egress = egress.New(egress.Config{})
	}
	m := &Module{sandbox: loaded, size: loaded.Size(), imports: imports{egress: o.Egress}, allow: slices.Clone(o.Allow)}
	about := interp.Of(wasm)
	m.interpreted = about != nil
	if m.tools, err = m.describe(ctx, wasm, o, side); err != nil {
		loaded.Close(ctx)
		return nil, err
	}
	for _, t := range m.tools {
		t.module, t.imports = m, m.imports
		m.size += t.schemas()
	}
	return m, nil
}

func (m *Module) describe(ctx context.Context, wasm []byte, o Options, side *registry.Sidecar) (tools []*Tool, err error) {
	if m.command() && side == nil {
		return []*Tool{describeCommand(o.Name)}, nil
	}
	var doc []byte
	if !m.command() {
		if doc, err = m.sandbox.Describe(ctx); err != nil {
			failed := &DescriptionError{Err: fmt.Errorf(notHad+"%w", err)}
			if interp.Of(wasm) != nil && errors.Is(err, abi.ErrPanicked) {
				_, failed.Script, _ = strings.Cut(err.Error(), "\n") // what the interpreter wrote follows the reason
			}
			return nil, failed
		}
	}
	if side != nil {
		doc, err = withSidecar(work.For(ctx, len(doc)), doc, side, o.Name)
	}
	if err == nil {
		limits := recordedSchemas
		if o.New {
			limits = work.ForSize(len(doc))
		}
		tools, err = parseDescription(work.New(ctx, limits), doc)
	}
	if err != nil {
		return nil, &DescriptionError{Err: err}
	}
	for _, t := range tools {
		if m.command() {
			says := program(side.Tools[t.Name()])
			t.program = &says
		}
	}
	return tools, nil
}

// DescriptionError is returned for a module whose starling_describe fails or returns an
// invalid description.
type DescriptionError struct {
	Err error
	// Script has what the interpreter of a tool in a scripting language wrote about a source that
	// does not load, such as "tool.py:3:5: SyntaxError: ..." and the line with a mark below.
	Script string
}

// Error describes the error in the description, or in the source.
func (e *DescriptionError) Error() string {
	if e.Script != "" {
		return "guest: " + e.Script
	}
	return "guest: the module's description " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *DescriptionError) Unwrap() error { return e.Err }

// Advice returns advice for the module's author, if any.
func (e *DescriptionError) Advice() string {
	text := e.Err.Error()
	switch {
	case strings.Contains(e.Script, "ModuleNotFoundError"):
		return "a tool in Python may import the standard library, requests, and the files beside its tool.py: write what is missing there, or call a service that has it; an MCP server in Python is called through: starling-host mcp --server 'python FILE'"
	case strings.Contains(text, notInitialized):
		return "build it as a library: go build -buildmode=c-shared"
	case errors.Is(e.Err, tool.ErrFuel) && strings.HasPrefix(text, notHad+"in "): // an export that runs before
		return "start-up code has this much fuel, independent of the fuel of a call: import fewer packages, or do the work in the call"
	case errors.Is(e.Err, tool.ErrFuel):
		return "the description has the fuel of a call: allow more of it"
	}
	return ""
}

// notHad is the prefix of the error of a failed starling_describe.
const notHad = "could not be had: "

// notInitialized is the message of Go's runtime (sys_wasm.go) when an export of a program,
// rather than a library, is called.
const notInitialized = "wasmexport function called before runtime initialization"

// Tools returns the module's tools in the order of its description.
func (m *Module) Tools() []*Tool { return slices.Clone(m.tools) }

// Tool returns the tool of that name.
func (m *Module) Tool(name string) (*Tool, bool) {
	i := slices.IndexFunc(m.tools, func(t *Tool) bool { return t.Name() == name })
	if i < 0 {
		return nil, false
	}
	return m.tools[i], true
}

// Digest returns the module's identity: the BLAKE3-256 of its bytes.
func (m *Module) Digest() canon.Hash { return canon.Hash(m.sandbox.Digest()) }

// Size returns the approximate memory of the module beside its compiled code: its rewritten
// bytes and its compiled schemas.
func (m *Module) Size() int { return m.size }

// Imports returns the module's imports, as module.name, sorted. Toolchains drop unused
// imports, so the list shows everything it can do.
func (m *Module) Imports() []string { return m.sandbox.Imports() }

// ABI returns abi.Version, or abi.Command.
func (m *Module) ABI() string { return m.sandbox.ABI() }

// Close releases the compiled module. Calls in progress must have returned.
func (m *Module) Close(ctx context.Context) error { return m.sandbox.Close(ctx) }

func (m *Module) command() bool { return m.sandbox.ABI() != abi.Version }

func (m *Module) identity(i imports) *event.Sandbox {
	digest := m.sandbox.Digest()
	identity := &event.Sandbox{
		Module:    digest[:],
		ABI:       m.sandbox.ABI(),
		CostTable: rewrite.CostTableVersion,
		Limits:    event.SandboxLimits(m.sandbox.Limits()),
		Rules:     event.RulesVersion,
		Allow:     m.allow,
	}
	if i.policy != nil {
		identity.Policy = i.policy.Identity()
	}
	return identity
}

// stopped is, in a replay, the recorded interruption of a call.
type stopped struct {
	class error
	text  string
}

func (s *stopped) Error() string { return s.text }
func (s *stopped) Unwrap() error { return s.class }

// stopError rebuilds the error of a call that timed out, was cancelled or lost, with the
// recorded class and text.
func stopError(recorded event.ToolCallFailed) error {
	class := tool.ErrTimeout
	switch recorded.ErrorType {
	case event.ErrorCancelled:
		class = tool.ErrCancelled
	case event.ErrorLost:
		class = tool.ErrLost
	}
	return &stopped{class: class, text: recorded.Error}
}

// Source is a module found by [Find], and SourceError the reason why none was found.
type (
	Source      = registry.Module
	SourceError = registry.Error
)

// Find returns the module that ref names: the path of a .wasm file, of a tool in Python, which it
// packs with the interpreter, or of a folder with a tool in Go, TypeScript or JavaScript, which it
// builds. A component of WASI 0.2 becomes a core
// module. Errors are a [*SourceError], except for the end of ctx, failures of the file system, and
// a refused component, which is a [*rewrite.Refusal].
func Find(ctx context.Context, ref string) (Source, error) { return registry.Open(ctx, ref) }

// FromBytes returns the module in bytes. The name is used if it is a WASI command. A component is
// linked where the engine compiles: [Processes] do it in a process of its own, which dies with ctx.
// Without an engine it is linked here. The error of a refused component is a [*rewrite.Refusal].
// Room hears of the size of the module that a component becomes, and may refuse it; nil accepts all.
func FromBytes(ctx context.Context, engine Linker, name string, wasm []byte, room func(bytes int) error) (s Source, err error) {
	s = Source{Name: name, Wasm: wasm}
	if !component.Needed(wasm) {
		return s, nil
	}
	if engine == nil {
		engine = inline{}
	}
	if room == nil {
		room = func(int) error { return nil }
	}
	s.Wasm, err = engine.Link(ctx, wasm, room)
	return s, err
}

// Provenance identifies the component from which a module was made.
type Provenance = component.Provenance

// ComponentOf returns the component from which a module was made, or nil.
func ComponentOf(wasm []byte) *Provenance {
	return component.ProvenanceOf(work.For(context.Background(), len(wasm)), wasm)
}

// Interpreter is what the module of an interpreter says of itself, also in the tools made of it.
type Interpreter = interp.About

// InterpreterOf returns the interpreter in a module, or nil.
func InterpreterOf(wasm []byte) *Interpreter { return interp.Of(wasm) }

// WithProgress returns a context in which [Find] and [Load] call began at the start of each
// slow step, such as "building ./tool (Go)" or "compiling dice", and the returned function
// at its end. Nil reports no progress.
func WithProgress(ctx context.Context, began func(what string) (ended func())) context.Context {
	return registry.WithProgress(ctx, began)
}

// BuildCacheFolder returns the folder of the build cache, whether or not it exists.
func BuildCacheFolder() (string, error) { return registry.CacheDir() }

// Compilers looks for the compilers of all languages that need one. Their errors are a
// [*SourceError].
func Compilers(ctx context.Context) []registry.Compiler { return registry.Compilers(ctx) }
