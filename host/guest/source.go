package guest

import (
	"context"

	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/work"
)

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
