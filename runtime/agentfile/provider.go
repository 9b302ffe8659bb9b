//go:build !js

package agentfile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/provider"
)

// Endpoint says which provider has the model and how it is reached. Empty fields
// are the provider's defaults.
type Endpoint struct {
	Provider   string // such as "openai", or "script"
	Script     string // the file of a script
	BaseURL    string
	APIVersion string
	APIKeyEnv  string // the name of an environment variable
	Region     string
	Headers    map[string]string
}

// scripted is the provider of a script, and its model.
const scripted = "script"

// choice is the value of the key provider: a name, or {script: FILE}.
type choice struct{ name, script string }

// DecodeYAML implements [config.Decoder].
func (c *choice) DecodeYAML(n *config.Node) error {
	if n.Kind() == config.Map {
		var s struct {
			Script word `yaml:"script,required"`
		}
		err := n.Decode(&s)
		c.name, c.script = scripted, string(s.Script)
		return err
	}
	if err := n.Decode(&c.name); err != nil {
		return err
	}
	if _, ok := LookupVendor(c.name); !ok {
		return n.Errorf("there are "+strings.Join(VendorNames(), ", ")+", and {script: FILE}",
			"there is no provider %q", c.name)
	}
	return nil
}

// checkVendor checks what not every provider has.
func (d *document) checkVendor(n *config.Node) error {
	v, isVendor := LookupVendor(d.Provider.name) // a script is none
	for _, key := range []struct {
		name string
		has  bool
	}{
		{"base_url", isVendor}, {"api_version", v.Versions}, {"api_key_env", isVendor && !v.Regional},
		{"region", v.Regional}, {"headers", len(v.Headers) > 0},
	} {
		if at := n.Get(key.name); at != nil && !key.has {
			return at.Errorf("", "the provider %s has no %q", d.Provider.name, key.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		if !slices.Contains(v.Headers, name) {
			return n.Get("headers").Hidden().Errorf("there are "+strings.Join(v.Headers, ", "), "the provider %s has no header %q", d.Provider.name, name)
		}
	}
	if v.Address && d.BaseURL == "" {
		return n.Errorf("", `the provider %s needs the key "base_url"`, d.Provider.name)
	}
	if d.Model == "" && d.Provider.name != scripted {
		return n.Errorf("", `there is no key "model", which is required`)
	}
	return nil
}

// Provider connects to the provider of the model. Getenv is asked for keys, and is
// most often os.Getenv; a variable that is empty counts as one that is not set.
// Nothing is sent until the provider is used.
func (f *File) Provider(_ context.Context, getenv func(string) string) (provider.Provider, error) {
	if f.Endpoint.Provider == scripted {
		s, err := LoadScript(f.Endpoint.Script)
		if err != nil {
			return nil, err
		}
		return NewScript(s)
	}
	v, ok := LookupVendor(f.Endpoint.Provider)
	if !ok {
		return nil, fmt.Errorf("agentfile: there is no provider %q", f.Endpoint.Provider)
	}
	key, err := f.key(v, getenv)
	if err != nil {
		return nil, err
	}
	e := f.Endpoint
	return NewProvider(e.Provider, VendorConfig{
		APIKey: key, BaseURL: e.BaseURL, APIVersion: e.APIVersion, Region: e.Region, Headers: e.Headers, Getenv: getenv,
	})
}

// key returns the API key. It may be empty where the vendor's own server, which
// would want one, is not the one that is asked.
func (f *File) key(v Vendor, getenv func(string) string) (string, error) {
	name := cmp.Or(f.Endpoint.APIKeyEnv, v.KeyEnv)
	if name == "" {
		return "", nil
	}
	key := getenv(name)
	optional := f.Endpoint.APIKeyEnv == "" && f.Endpoint.BaseURL != "" && v.Keyless
	if key == "" && !optional {
		return "", f.at.Errorf(fmt.Sprintf("set it, or name another one with api_key_env: %s is where the key is looked for", name),
			"the environment variable %s is not set", name)
	}
	return key, nil
}
