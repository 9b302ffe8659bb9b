// Package span derives from the events of a run what the run did and for how long: turns,
// answers of the model, attempts of calls, effects and waits, each with its parent. Every view of
// a run uses it, and so does the exporter of traces.
//
// A [Builder] takes the events of a run, all at once or as they come. [Run.Rows] has the lines of a
// view in their order, and an [Axis] their places in time.
package span
