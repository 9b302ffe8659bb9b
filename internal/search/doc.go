// Package search finds runs by what they did. A query is a line of words, the same in the
// command's "runs" and in the search field of the page:
//
//	state:failed tool:xfetch host:api.example status:5xx error:timeout since:1h fuel:>1G text:"no route"
//
// A run must match every word. [Fields] are the fields that a word may name, in any case; any other
// word is part of a run's id, or of a text in its events. A word that names a field that does not
// exist is an error, unless it is an address or in quotation marks, which also hold spaces together.
// A hyphen before a word excludes what matches it, and * in a value stands for any text.
//
// [Find] answers a query from a listing of the runs and, if that lacks the facts, from the events
// of each run, within bounds. It keeps nothing: what the reader of the log may not decrypt is
// neither read nor found.
package search
