package spec

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed vectors agent.schema.json policy.schema.json openapi.yaml host.schema.json
var files embed.FS

// AgentSchema returns the JSON Schema of agent.yaml.
func AgentSchema() []byte { return embedded("agent.schema.json") }

// PolicySchema returns the JSON Schema of policy.yaml.
func PolicySchema() []byte { return embedded("policy.schema.json") }

// HostSchema returns the JSON Schema of host.yaml.
func HostSchema() []byte { return embedded("host.schema.json") }

// OpenAPI returns the contract of the HTTP API, openapi.yaml.
func OpenAPI() []byte { return embedded("openapi.yaml") }

func embedded(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return b
}

// Vectors returns the named file of the folder vectors, as in "json.jsonl".
func Vectors(name string) ([]byte, error) {
	b, err := files.ReadFile("vectors/" + name)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return b, nil
}

// Lines decodes each line of the named file into a T. A field that T does not
// have is an error, because a test that overlooks it would prove less than it
// seems to.
func Lines[T any](name string) ([]T, error) {
	b, err := Vectors(name)
	if err != nil {
		return nil, err
	}
	var all []T
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("spec: vectors/%s, entry %d: %w", name, len(all)+1, err)
		}
		all = append(all, v)
	}
	return all, nil
}
