// Package queuetest holds the one suite that every queue has to pass, and the
// means to test what builds on one: a clock that stands still, and a handler that
// ends runs.
package queuetest
