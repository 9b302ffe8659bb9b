// Package wasm reads and writes core WebAssembly modules. It knows no engine.
//
// A [Module] is its sections, kept as the bytes they came as, plus a decoded
// view of each. A reader looks at the view; an editor replaces the body of a
// section with [Module.SetBody]; [Module.Encode] writes the sections back. So
// unedited parts keep their exact bytes, padded LEB128 numbers
// included. Function bodies are never turned into a tree: [Module.Body]
// returns an iterator that steps over the instructions in place.
//
// # The format, by example
//
// A module is the magic "\0asm", the version 1, and sections: an id byte, the
// size of the body, the body. This one exports a function that adds one:
//
//	00 61 73 6d  01 00 00 00    magic, version
//	01 06  01                   section 1 (types), 6 bytes: one type
//	       60 01 7f 01 7f         a function: 1 parameter i32, 1 result i32
//	03 02  01 00                section 3 (functions): one, of type 0
//	07 05  01                   section 7 (exports): one
//	       01 66 00 00            name of 1 byte "f", kind 0 (function), index 0
//	0a 09  01                   section 10 (code): one body
//	       07 00                  of 7 bytes, with no groups of locals
//	       20 00 41 01 6a 0b      local.get 0, i32.const 1, i32.add, end
//
// Numbers are LEB128: seven bits to a byte, lowest first, the top bit set on
// all but the last byte. A count precedes every list.
//
// # What it refuses
//
// Decode accepts the MVP with sign extension, saturating truncation,
// multi-value, bulk memory, mutable globals and the reference types of
// WebAssembly 2.0. Everything else fails closed, at the byte where it stands:
// unknown sections, unknown opcodes, SIMD, threads, exceptions, tail calls,
// 64-bit and multiple memories. Errors are [*FormatError].
//
// Decoding is not validation: operand types are not checked, and indices are
// not compared with the spaces they point into. But no count is trusted: a
// count that the following bytes cannot hold is an error before anything is
// allocated for it, so that memory is proportional to the bytes read.
package wasm
