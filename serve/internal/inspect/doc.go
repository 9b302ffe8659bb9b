// Package inspect is the web view of a log: runs, their timelines, single events,
// two runs side by side, a run as it grows, and the verdicts of validation and
// replay. It reads, and executes replays; it changes nothing.
//
// A [Server] is an http.Handler that another program mounts, or that serves one
// database alone. What a request may see is decided for each request by
// [Config].Scope; see package eventview.
//
// # What a browser is trusted with
//
// What a log holds is hostile text, and so is every page that is open beside this
// one. Pages are rendered by html/template, with values in texts and quoted
// attributes only; scripts and styles are files of this package, and the content
// security policy allows no others; the script builds texts, never markup. Requests
// that come from another origin are refused, reading ones included, by what the browser
// says of them: see RATIONALE.md.
package inspect
