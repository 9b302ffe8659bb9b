// Command goguest is a guest for tests: a reactor that does what tools do most,
// read and write JSON, and lets the garbage collector work.
package main

import (
	"encoding/json"
	"sort"
	"strings"
)

func main() {}

// run returns a number that depends on everything it did n times.
//
//go:wasmexport run
func run(n int32) int32 {
	total := 0
	for i := range int(n) {
		var doc struct {
			Name  string             `json:"name"`
			Tags  []string           `json:"tags"`
			Rates map[string]float64 `json:"rates"`
		}
		text := `{"name":"tool","tags":["b","a","c"],"rates":{"x":0.25,"y":1e21,"z":-3}}`
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			panic(err)
		}
		doc.Tags = append(doc.Tags, strings.Repeat("d", i%7))
		sort.Strings(doc.Tags)
		out, err := json.Marshal(doc)
		if err != nil {
			panic(err)
		}
		for _, b := range out {
			total = total*31 + int(b)
		}
	}
	return int32(total)
}
