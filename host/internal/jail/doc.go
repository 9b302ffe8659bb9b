// Package jail makes a worker process give up every right it does not need, for
// good and before it reads anything that a module influenced.
//
// A worker executes machine code that was made from a hostile module by a
// compiler with mistakes. The sandbox keeps such code in. What if it does not?
// Then the code runs with the rights of the worker, and so the worker has none:
//
//   - rlimits: memory, processor time, file size and open files are bounded, by
//     death if need be. It writes no core, and yields to other processes.
//   - no_new_privs: no program it executes would get more rights than it has, and
//     no other process attaches to it (it is not dumpable).
//   - landlock: of the file system it has only the given folders; no connections,
//     no signals to others. It holds for what slips through the next layer.
//   - seccomp: of the kernel there are the calls that Go's runtime and the engine
//     make: memory, threads of this process, clocks, its pipes. No program, no
//     socket, no process, no tracing, no file outside of given folders. Any other
//     call fails with EPERM, and so the worker can still report its failure.
//
// Each layer holds for all threads of the process. A layer that the system lacks
// is left out and named in the [Report]; a layer that the system has but that
// fails is an error, and then the worker must not continue.
//
// Landlock and no_new_privs apply to the thread that asks for them, and to every
// program that this thread executes. A worker has several threads before its main
// function runs, and with cgo Go does not know all of them. So a worker starts
// twice (start_linux.go): as soon as this package is initialized, its first thread
// confines itself and executes the program again.
//
// Linux has all layers. On other Unix systems there are the limits, on Windows
// nothing.
package jail
