//go:build wasip1

// Gomin turns letters into upper case, without any package that knows types at
// run time: the least that Go brings along.
package main

import "github.com/starling-host/starling/bench/guests/go/host"

func init() { host.Transform = upper }

func main() {}

func upper(input []byte) []byte {
	out := make([]byte, len(input))
	for i, c := range input {
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		out[i] = c
	}
	return out
}
