// Package wasmtest builds WebAssembly modules for tests from Go values, so that
// a test says what its module contains and needs no binary file. It writes what
// it is told, valid or not.
package wasmtest
