// Package registry finds the bytes of a module.
//
// A reference is a path: a .wasm file, which is read, a tool in Python, which is packed with the
// interpreter that the program carries, or a folder with a tool in Go, TypeScript, JavaScript, Rust,
// C or AssemblyScript, which is built with the local toolchain. A component for WASI 0.2 becomes a
// core module (see host/internal/component). In each case the result is a byte slice, and from there
// on only the bytes count: their digest is the module's identity, and nothing remembers where they
// came from.
//
// A build in Go is a pure function of the files that the Go command reads, so its
// output is cached by content: the key is a digest over the toolchain's version, the
// flags, and every source file outside the standard library that takes part (see
// [Open]). A cached module is stored with its own digest and is built again when the
// two do not agree. Builders do not lock each other out: an entry appears by rename, so
// two that build the same tool at once write the same bytes twice.
//
// Any user may build a folder, and its author is not trusted. So a module contains
// files of the folder and none of the machine's: a tool in JavaScript or Python is built from its
// folder alone, a tool in Go from the Go module that holds the folder and from modules
// that go.sum vouches for, and a tool in Rust, C or AssemblyScript from a copy of its folder. Links are followed first. And a build executes nothing that
// the folder brings or chooses.
//
// The package refuses files that cannot be a module before it reads them: irregular
// files, empty files, and files larger than [MaxModuleBytes]. It does not look into the
// bytes of a core module; that is the duty of host/internal/rewrite. Nothing is ever written into the
// folder of a tool.
package registry
