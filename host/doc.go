// Package host holds the packages that run untrusted tools. It exports
// nothing; this is their map, from the bytes of a module to a tool that an
// agent can call:
//
//   - host/registry finds modules: a file, or a folder that it builds.
//   - host/wasm reads and writes modules. It knows no engine.
//   - host/rewrite decides whether a module may run, and writes fuel, call
//     depth and limits into it: bytes in, checked bytes out.
//   - host/sandbox runs rewritten modules in wazero, one instance per call. It
//     takes the world as an interface of four functions.
//   - host/guest makes a loaded module a set of tools, and binds those four
//     functions to the deterministic steps of a run.
//   - host/queue keeps runs that were promised until they have ended, and takes
//     turns between tenants.
//   - host/tenant keeps who may use the host: their keys, limits, policies,
//     secrets and modules.
//   - host/narrate says in one line what an event records, and host/logview is
//     what one reader may see of a log; host/inspect shows that in a browser, and
//     host/mcpsrv to an assistant.
//
// A package here may import those before it in this list, and the packages of
// runtime, eventlog and abi.
package host
