// Transform is guest-sdk/go/examples/transform with Extism's kit.
package main

import (
	"strings"

	pdk "github.com/extism/go-pdk"
)

type input struct {
	Text string `json:"text"`
}

type output struct {
	Words  int            `json:"words"`
	Upper  string         `json:"upper"`
	Counts map[string]int `json:"counts"`
}

func main() {}

//go:wasmexport run
func run() int32 {
	var in input
	if err := pdk.InputJSON(&in); err != nil {
		pdk.SetError(err)
		return 1
	}
	if err := pdk.OutputJSON(transform(in)); err != nil {
		pdk.SetError(err)
		return 1
	}
	return 0
}

func transform(in input) output {
	out := output{Upper: strings.Map(raise, in.Text), Counts: map[string]int{}}
	for _, word := range strings.FieldsFunc(out.Upper, func(r rune) bool { return (r < 'A' || 'Z' < r) && (r < '0' || '9' < r) }) {
		out.Words++
		out.Counts[strings.ToLower(word)]++
	}
	return out
}

// raise makes a capital of a letter of ASCII.
func raise(r rune) rune {
	if 'a' <= r && r <= 'z' {
		return r - 'a' + 'A'
	}
	return r
}
