//go:build wasip1

// Gojson reads a JSON document with encoding/json, raises every number by a
// tenth, and writes it again.
package main

import (
	"encoding/json"

	"github.com/starling-host/starling/bench/guests/go/host"
)

func init() { host.Transform = transform }

func main() {}

func transform(input []byte) []byte {
	var document any
	if err := json.Unmarshal(input, &document); err != nil {
		return []byte(err.Error())
	}
	out, err := json.Marshal(raised(document))
	if err != nil {
		return []byte(err.Error())
	}
	return out
}

func raised(v any) any {
	switch v := v.(type) {
	case float64:
		return v * 1.1
	case []any:
		for i := range v {
			v[i] = raised(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = raised(v[key])
		}
	}
	return v
}
