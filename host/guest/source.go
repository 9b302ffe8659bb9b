package guest

import (
	"context"

	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/registry"
)

// Source is a module that was found, and SourceError says why there is none.
type (
	Source      = registry.Module
	SourceError = registry.Error
)

// Find returns the module that ref names: the path of a .wasm file, or of a folder with a
// tool in Go, TypeScript or JavaScript, which is built. A component of WASI 0.2 becomes a core
// module. Errors are a [*SourceError], but for the end of ctx, failures of the file system, and
// a component that is refused, which is a [*rewrite.Refusal].
func Find(ctx context.Context, ref string) (Source, error) { return registry.Open(ctx, ref) }

// FromBytes returns the module that bytes are. The name is that of a WASI command. The error of a
// component that is refused is a [*rewrite.Refusal].
func FromBytes(name string, wasm []byte) (Source, error) { return registry.FromBytes(name, wasm) }

// Provenance is what a module says of the component that it was made of.
type Provenance = component.Provenance

// ComponentOf returns the component that a module was made of, or nil.
func ComponentOf(wasm []byte) *Provenance { return component.ProvenanceOf(wasm) }

// WithProgress returns a context in which [Find] and [Load] call began with what they begin
// that can take seconds, such as "building ./tool (Go)" or "compiling dice", and then the
// function that it returns. Nil is for no progress.
func WithProgress(ctx context.Context, began func(what string) (ended func())) context.Context {
	return registry.WithProgress(ctx, began)
}

// BuildCacheFolder returns the folder of the build cache, whether or not it exists.
func BuildCacheFolder() (string, error) { return registry.CacheDir() }

// GoVersion returns the version of the Go command that would build a tool, and its path.
func GoVersion(ctx context.Context) (version, path string, err error) { return registry.GoVersion(ctx) }

// ScriptBuilder returns the version of the command that would build a tool in TypeScript
// or JavaScript, and its path.
func ScriptBuilder(ctx context.Context) (version, path string, err error) {
	return registry.ScriptBuilder(ctx)
}
