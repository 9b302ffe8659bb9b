// Package wit makes tools of interfaces in WIT, the language in which components describe their
// functions.
//
//   - parse.go reads the files of a package, and resolve.go finds what their names mean. The result
//     is a [World].
//   - rust.go writes what a tool in Rust needs to implement a world. abi.rs is the part of it that
//     is the same for all worlds.
//   - encode.go puts the core module that a compiler makes of it into a component.
//
// Resources, streams, futures and asynchronous functions are read, but no tool can be made of a
// world that exports them: a tool has no state between two calls.
package wit
