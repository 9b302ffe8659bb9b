// Package guest makes a loaded module a tool that the runtime can call.
//
// Three things meet here. The sandbox executes a module and knows nothing of
// the log. The runtime records what crosses its boundary and knows nothing of
// WebAssembly. The egress client reaches the network and knows neither. This
// package binds them, and imports.go is where it happens: the clock of a guest
// is step.Now, its randomness step.Random, its HTTP one recorded effect.
//
// Around that binding the package keeps the promises that a module makes about
// itself. What starling_describe returns is checked before anything is called:
// names, sizes, schemas that compile and that cannot be made to run for ever.
// An input that does not match its schema never reaches the guest, and an
// output that does not match never reaches the caller.
//
// A WASI command (a module with _start and no description) is a tool as well:
// it accepts and returns any JSON document.
package guest
