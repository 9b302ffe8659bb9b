// Package worker executes guests in processes of their own.
//
// The sandbox promises that a guest cannot reach out of it. This package is for when that
// promise is not enough: when modules come from people who gain from breaking it, or may
// take the processor and memory from others. The program runs itself again as a worker
// ([Main]), which gives up everything but its pipes (package jail) before it reads a byte
// of a module. A worker has one module for all its life and makes one call at a time; calls
// at the same time have a worker each. So a module can harm only its own process, and
// killing a process ends one call.
//
// Three kinds of work are divided. The host keeps compiled code, and a module's bytes, which
// it does not decode. A second process checks, rewrites and compiles a module, once for all
// processes, which cannot be interrupted and may use any amount of resources, and ends with
// it ([Compiler]). A third process runs the module; it gets the code, and from the module
// everything but the bodies.
//
// The two sides talk in frames over the worker's standard input and output
// (main.go, wire.go). A call goes there, each effect comes back with the
// meter's reading and waits for the answer, and a result ends it. A process asks for each
// content of the call's files, and sends the new ones (files.go). Whatever comes
// from a worker is hostile: lengths are bounded, texts are UTF-8, counts only
// grow, and the limits of a call are held on this side as well. A worker that
// breaks the protocol is killed.
//
// An engine that is observed ([Engine.Observed]) executes by the machine of package sandbox.
// Its processes report functions, counts and fuel in frames between the others (observe.go).
//
// How many calls compute at once is bounded by CPU slots. Package scheduler decides which
// tenant gets the next one; the call's context names the tenant. A call acquires its slot
// before it takes a process and before its time begins. It releases the slot while it waits
// for an exchange, and acquires another one afterwards, in its time. A call that takes
// longer than a moment releases its slot and is demoted if it computes.
//
// A call in a worker is the same call as inline, with the same bytes, fuel and errors, and
// either replays as the other. The only difference is that its process may die, or be
// killed because it does not end in time (watch.go). Then the outcome has the meter of the
// last effect (spec/event.md, section 7), and a replay ends as that effect returns.
package worker
