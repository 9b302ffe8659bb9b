// Package component makes one core module of a WebAssembly component: a tool of the contract
// starling:v1, or a WASI command. The rest of the host sees that module alone, so the gate, the
// rewriting, the log and replay know nothing of components.
//
// [Link] works in three steps:
//
//   - read.go follows the instantiation of the component as far as nothing runs: index spaces,
//     aliases, nested components, canonical definitions. types.go has the value types with their
//     layout. All of it draws from a work.Budget of the caller.
//   - join.go puts the core modules, which share one memory, into one: it resolves their imports,
//     computes their constants, and moves every index. Tables never change, so a call of a constant
//     entry, which adapters consist of, becomes a direct call. What nothing reaches is left out.
//   - stub.go writes the functions between the parts. A function that the component imports is one
//     of the guest side (guest/, in C): WASI 0.2 over the imports that every tool has, tables of
//     handles, and JSON to and from the canonical ABI, driven by the descriptors of describe.go.
//
// The guest side is joined like any other part. Its memory comes from the component's own
// allocator, because a component may believe that it alone makes memory grow.
//
// Nothing here decides about safety: the gate checks the joined module like every other one, and
// the engine its types. Indices of the parts are checked where they are moved.
package component
