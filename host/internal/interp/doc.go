// Package interp has the interpreters that the program carries, and makes a tool of an interpreter
// and a source text: the interpreter's module with the source in one more data segment.
//
// The engine for JavaScript is QuickJS (LICENSE.quickjs) with guest-sdk/js/runtime. run_js is the
// engine with guest-sdk/js/runjs/run_js.js and sucrase (LICENSE.sucrase). guest-sdk/js/build.sh
// builds both.
package interp
