// Package rewrite turns a module of unknown origin into one that a host can run:
// bytes in, checked and metered bytes out. It is a pure function and knows no
// engine.
//
// The gate comes first. Before any engine parses a byte, it refuses modules that
// would hurt at load time or could not be controlled at run time, with a
// [*Refusal] that names what and where.
//
// [Rewrite] passes the gate and then adds, to every function, what makes its
// execution countable and finite. spec/determinism.md is normative; in short:
//
//   - Fuel. Every straight-line block begins with one addition of its cost to
//     [GlobalFuel], a counter that only grows. At the head of each loop and
//     the entry of each function that calls, the counter is compared with
//     [GlobalLimit]; beyond it the guest calls [RefillModule]'s
//     [RefillName], where the host raises the limit or panics to end the call.
//     Bulk memory operations pay by length, in pieces.
//   - Depth. Every function that calls takes the slots of its frame from
//     [GlobalDepth] and gives them back on every way out. Below zero it traps.
//   - NaNs. Where the bits of an arithmetic NaN could be seen, it is made
//     canonical.
//   - The start function becomes the export [ExportStart], so that it runs
//     when the host has set the budget, not while the engine instantiates.
//   - State. Data segments go to the host, and every mutable global is exported,
//     so that the host can keep and put back all that an instance can change.
//   - The memory gets the host's maximum. Custom sections go.
//
// So the count belongs to the bytes and not to the engine: it is the same on
// every engine and every machine. An interrupted call is replayed by
// setting the limit one below the recorded counter: the same check stops it.
//
// An invalid module stays invalid. All indices are compared with the module's own
// index spaces before anything is appended to them, so that a guest cannot name
// the counter, and the engine validates the result.
//
// [Shell] takes the bodies out again, for an engine that has compiled them before.
package rewrite
