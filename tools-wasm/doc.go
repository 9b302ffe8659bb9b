// Package tools holds nothing; the folders beside it hold one tool each: a
// program that uses the SDK in guest-sdk/go, its README, and its tests.
//
// A tool is built by naming its folder (starling-host run ./tools-wasm/dice),
// or by hand with the command in README.md. A tool that needs other libraries
// is a Go module of its own, so that they stay out of the host's.
package tools
