package spec

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
)

//go:embed vectors
var vectors embed.FS

// Each file is a variable of its own, so that a program has those that it uses.
var (
	//go:embed agent.schema.json
	agentSchema []byte
	//go:embed script.schema.json
	scriptSchema []byte
	//go:embed policy.schema.json
	policySchema []byte
	//go:embed host.schema.json
	hostSchema []byte
	//go:embed sidecar.schema.json
	sidecarSchema []byte
	//go:embed trust.schema.json
	trustSchema []byte
	//go:embed openapi.yaml
	openAPI []byte
)

// AgentSchema returns the JSON Schema of agent.yaml.
func AgentSchema() []byte { return agentSchema }

// ScriptSchema returns the JSON Schema of the script of a model.
func ScriptSchema() []byte { return scriptSchema }

// PolicySchema returns the JSON Schema of policy.yaml.
func PolicySchema() []byte { return policySchema }

// HostSchema returns the JSON Schema of host.yaml.
func HostSchema() []byte { return hostSchema }

// SidecarSchema returns the JSON Schema of NAME.tool.yaml.
func SidecarSchema() []byte { return sidecarSchema }

// TrustSchema returns the JSON Schema of trust.yaml.
func TrustSchema() []byte { return trustSchema }

// OpenAPI returns the contract of the HTTP API, openapi.yaml.
func OpenAPI() []byte { return openAPI }

// Vectors returns the named file of the folder vectors, as in "json.jsonl".
func Vectors(name string) ([]byte, error) {
	b, err := vectors.ReadFile("vectors/" + name)
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
