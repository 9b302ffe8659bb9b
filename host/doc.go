// Package host holds the packages that run untrusted tools, and serve them to
// tenants who do not trust each other. It exports nothing; this is their map.
//
// From the bytes of a module to a tool that an agent can call:
//
//   - host/cachefile keeps bytes in the files of caches.
//   - host/registry finds modules: a file, or a folder that it builds.
//   - host/wasm reads and writes modules. It knows no engine.
//   - host/rewrite decides whether a module may run, and writes fuel, call
//     depth and limits into it: bytes in, checked bytes out.
//   - host/profile says where the fuel of a call went.
//   - host/program says which program this process is.
//   - host/sandbox runs rewritten modules in wazero, one instance per call. It
//     takes the world as an interface of four functions.
//   - host/policy decides what the tools of a run may do.
//   - host/turns divides the processors between tenants.
//   - host/guest makes a loaded module a set of tools, and binds those four
//     functions to the deterministic steps of a run.
//   - host/worker is a sandbox in a process of its own, which can do nothing else.
//   - host/shelf keeps loaded modules for those who share them, and host/recorded
//     loads those that a replay needs.
//   - host/agentfile reads the file that says what an agent is.
//
// What shows a log to people and programs, and changes nothing of it:
//
//   - host/narrate says in one line what an event records.
//   - host/logview is what one reader may see of a log.
//   - host/inspect shows that in a browser, host/mcpsrv to an assistant.
//
// What serves tenants:
//
//   - host/queue keeps runs that were promised until they have ended, and takes
//     turns between tenants.
//   - host/tenant keeps who may use the host: their keys, limits, policies,
//     secrets and modules.
//   - host/hostfile reads the file that says how a host serves.
//   - host/daemon is the host over HTTP.
//   - host/front gives the daemon its view for browsers and for assistants, each
//     tenant its own.
//
// A package here may import those before it in this list, and the packages of
// runtime, eventlog and abi.
package host
