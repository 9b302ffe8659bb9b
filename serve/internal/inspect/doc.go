// Package inspect is the web view of a log: runs, what each did as a waterfall, its events,
// conversation and requests, two runs side by side, a run as it grows, and the verdicts of
// validation and replay. It reads, and executes replays; it changes nothing.
//
// A [Server] is an http.Handler that another program mounts, or that serves one
// database alone. [Config].Scope decides for each request what it may see; see package
// eventview.
//
// # What a browser is trusted with
//
// The content of a log is hostile text, and so is every other page open in the browser.
// Pages are rendered by html/template, with values in texts and quoted attributes only;
// scripts and styles are files of this package, and the content security policy allows
// no others; the script builds texts, never markup. Requests from another origin are
// refused, reading ones included, by the headers that the browser sends: see
// RATIONALE.md.
package inspect
