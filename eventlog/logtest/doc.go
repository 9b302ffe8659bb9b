// Package logtest holds the one suite that every event log has to pass, and the
// means to make runs for tests, and loads for benchmarks.
package logtest
