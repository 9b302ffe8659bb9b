// Package builtin has two native tools that are useful by themselves and show
// how one is written: [Fetch] gets a public URL, [ReadFile] reads a file below a
// folder.
//
// Both reach the world through one recorded effect, so a replay neither fetches
// nor reads: the server may be gone and the file deleted.
package builtin
