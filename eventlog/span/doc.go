// Package span derives from the events of a run what the run did and for how long: turns,
// answers of the model, attempts of calls, effects and waits, each with its parent. Every view of
// a run is made of it.
package span
