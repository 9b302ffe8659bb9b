// Transform counts the words of a text. It makes no host call, so its output depends on its input
// alone.
package main

import (
	"strings"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type input struct {
	Text string `json:"text"`
}

type output struct {
	Words  int            `json:"words"`
	Upper  string         `json:"upper"`
	Counts map[string]int `json:"counts"`
}

func init() {
	tool := typed.Tool("transform", "Counts the words of a text and raises its letters.", transform)
	tool.Idempotent = true
	starling.Register(tool)
}

func main() {}

func transform(_ *starling.Call, in input) (output, error) {
	out := output{Upper: strings.Map(raise, in.Text), Counts: map[string]int{}}
	for _, word := range strings.FieldsFunc(out.Upper, func(r rune) bool { return (r < 'A' || 'Z' < r) && (r < '0' || '9' < r) }) {
		out.Words++
		out.Counts[strings.ToLower(word)]++
	}
	return out, nil
}

// raise makes a capital of a letter of ASCII.
func raise(r rune) rune {
	if 'a' <= r && r <= 'z' {
		return r - 'a' + 'A'
	}
	return r
}
