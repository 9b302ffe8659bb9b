// Package source finds the lines of source code that belong to places in a module.
//
// The module may come from anybody, and so may its debug information. Every reader here is bounded
// by the bytes it is given, and wrong bytes yield missing or wrong lines, never a panic. That is why
// DWARF is read here, and not by the standard library: see RATIONALE.md.
//
//   - C, C++, Rust and others write DWARF: lines, inlined functions, variables.
//   - Go writes its own line table and no DWARF for WebAssembly: lines, inlined functions, no
//     variables. A line is exact for a call, and otherwise that of the next call in the function.
//   - Python and JavaScript are executed by an interpreter. Its stack is read from the memory.
//   - Any module may have names of its functions.
package source
