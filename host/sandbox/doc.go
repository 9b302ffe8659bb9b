// Package sandbox executes untrusted tools. Only this package knows the engines: wazero's, our own in
// host/internal/machine, and on js that of the browser or of Node.
//
// # How to think about it
//
// A guest is a function. Its arguments are its bytes, its input, its files and what [Imports] answers;
// its value is its output, its end, the files that it leaves, and its meter: fuel, memory and log. So the same arguments give the
// same value on every engine, today and in ten years. Replay needs nothing
// more, and most of this package keeps other inputs out: the clock is virtual, randomness is
// expanded from one recorded seed, fuel and depth are counted by the module's own rewritten code,
// engine error texts and half-defined registers stay in here.
//
// spec/abi.md is the contract with the guest and is normative for what this
// package does.
//
// # The path of a module
//
//	Read          gate and rewrite (host/internal/rewrite), exports of the contract, compile
//	Engine.Load   Read, here or in another process, or the cache -> start-up -> start
//	Module.Call   instance at the start -> input -> execute -> output -> instance put back to the start
//
// A session is the host's side of one call; the context of its instance leads the host functions to it,
// so that they are registered once. Start function, _initialize and starling_warmup run without effects, with
// constant clock and randomness and without effects, so their result is a function of the module alone.
// It is kept as the module's start: an image of the memory, the globals, and the virtual clock. Every
// call begins with that, and not with a new instance. If it took long, the cache has it as well, in
// place of the data that it was made of, and the next process begins with it. The slow engines have
// no cache, and so remain a second opinion on start-ups.
//
// # Why a used instance is as good as a new one
//
// An instance can change only its memory and its mutable globals: the gate has no instruction for tables
// or segments, the module holds no descriptors, and the host's state of a call is made for the call. The
// rewriter exports every mutable global, and package image finds every page that was written. The
// memory's length is put back too. An instance whose code did not return by itself is closed instead of
// trusted. Config.VerifyEvery compares all of it with the start.
//
// # How a call ends
//
// The guest returns, or its code traps, or one of this package's host functions panics with an error
// that the engine passes through: fuel spent, deadline, limit, proc_exit, or an error of Imports. All of
// it happens on the goroutine of Call, in the guest's own order; nothing is ever closed or written from
// outside while a guest runs. The host looks at the world only where the guest's fuel counter meets its
// limit. So an end that the world decides has a position in the computation, the counter's value, at
// which [Call].StopAt repeats it.
//
// # Refusals
//
// Modules that the gate or the engine rejects, that import anything but
// starling:v1 and WASI preview 1, or that lack an export of the contract:
// [rewrite.Refusal], before any of their code has run. A cache folder that
// another user could write to. Limits that it could not keep.
//
// If the process dies here, the call is lost. Nothing in this package outlives it; the effects of the
// guest are in the log of the caller, which implements Imports.
package sandbox
