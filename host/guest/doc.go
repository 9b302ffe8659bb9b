// Package guest makes a loaded module a tool that the runtime can call.
//
// It connects three parts. The sandbox executes a module and does not know the log. The
// runtime records effects and does not know WebAssembly. The egress client reaches the
// network and knows neither. imports.go connects them: the clock of a guest is step.Now,
// its randomness step.Random, its HTTP one recorded effect.
//
// The package also enforces the description of a module. It checks the document of
// starling_describe before any call: names, sizes, and schemas, which must compile and be
// evaluated in bounded time. An input that does not match its schema never reaches the
// guest, and an output that does not match never reaches the caller.
//
// A WASI command (a module with _start and no description) is a tool as well:
// it accepts and returns any JSON document.
package guest
