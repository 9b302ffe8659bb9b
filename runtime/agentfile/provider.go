//go:build !js

package agentfile

import (
	"cmp"
	"context"
	"fmt"

	"github.com/starling-host/starling/runtime/provider"
)

// Endpoint names the provider of the model and its address. Empty fields are the provider's
// defaults.
type Endpoint struct {
	Provider   string            // such as "openai", or "script"
	Script     string            // the file of a script
	BaseURL    string            `yaml:"base_url"`
	APIVersion string            `yaml:"api_version"`
	APIKeyEnv  string            `yaml:"api_key_env"` // the name of an environment variable
	Region     string            `yaml:"region"`
	Headers    map[string]string `yaml:"headers"`
}

// scripted is the provider of a script, and its model.
const scripted = "script"

// scriptOrName is the value of the key provider: a name, or {script: FILE}.
type scriptOrName struct {
	name   string
	Script string `yaml:"script"`
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *scriptOrName) UnmarshalText(name []byte) error {
	s.name = string(name)
	return nil
}

// Provider connects to the provider of the model. Getenv, usually os.Getenv, supplies keys;
// an empty variable counts as unset. Nothing is sent until the provider is used.
func (f *File) Provider(_ context.Context, getenv func(string) string) (provider.Provider, error) {
	if f.Endpoint.Provider == scripted {
		s, err := LoadScript(f.Endpoint.Script)
		if err != nil {
			return nil, err
		}
		return NewScript(s)
	}
	key, err := f.key(vendors[f.Endpoint.Provider], getenv)
	if err != nil {
		return nil, err
	}
	e := f.Endpoint
	return NewProvider(e.Provider, VendorConfig{
		APIKey: key, BaseURL: e.BaseURL, APIVersion: e.APIVersion, Region: e.Region, Headers: e.Headers, Getenv: getenv,
	})
}

// key returns the API key. It may be empty for a server other than the vendor's own.
func (f *File) key(v vendor, getenv func(string) string) (string, error) {
	name := cmp.Or(f.Endpoint.APIKeyEnv, v.keyEnv)
	if name == "" {
		return "", nil
	}
	key := getenv(name)
	optional := f.Endpoint.APIKeyEnv == "" && f.Endpoint.BaseURL != "" && v.keyless
	if key == "" && !optional {
		return "", f.at.Errorf(fmt.Sprintf("export %s=KEY, or name another variable with api_key_env", name),
			"the environment variable %s is not set", name)
	}
	return key, nil
}
