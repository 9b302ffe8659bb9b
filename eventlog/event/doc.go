// Package event holds the envelope, the kinds and the payloads of the events
// of a run.
package event
