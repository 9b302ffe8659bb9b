package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
)

// manifestName is the file that makes a folder an extension of IronClaw.
const manifestName = "manifest.toml"

// linkExtension returns the module of an extension of IronClaw: a component, and a manifest that
// lists its tools with their schemas. Files outside of the folder are not read.
func linkExtension(ctx context.Context, ref, dir, _ string) ([]byte, error) {
	broken := func(format string, args ...any) error {
		return &Error{Ref: ref, Reason: manifestName + ": " + fmt.Sprintf(format, args...)}
	}
	folder := &folder{root: dir}
	read := func(name string) ([]byte, error) {
		text, err := folder.read(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, broken("%v", err)
		}
		return text, nil
	}
	text, err := read(manifestName)
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := decodeTOML(ctx, text, &m); err != nil {
		return nil, broken("%v", err)
	}
	var actions []component.Action
	for _, t := range m.Tools {
		a := component.Action{ID: t.ID, Description: t.Description, Schema: abi.JSON(`{"type":"object"}`)}
		if t.Schema != "" {
			if a.Schema, err = read(t.Schema); err != nil {
				return nil, err
			}
			if !json.Valid(a.Schema) {
				return nil, broken("%s is not JSON", t.Schema)
			}
		}
		for _, c := range t.Credentials {
			host, way := c.Audience.Host, c.Injection
			if !audience().MatchString(host) {
				continue
			}
			a.Hosts = append(a.Hosts, host)
			if way.Type == "header" && way.Name == "authorization" && way.Prefix == "Bearer " && a.Address == "" {
				a.Address, a.Authorization = "https://"+host+"/", "Bearer {{secret:"+strings.ToUpper(c.Handle)+"}}"
			}
		}
		actions = append(actions, a)
	}
	if m.Runtime.Module == "" {
		return nil, broken("[runtime] names no module: only extensions in WebAssembly have one")
	}
	b, err := read(m.Runtime.Module)
	if err != nil {
		return nil, err
	}
	return component.Link(work.For(ctx, len(b)), b, actions...)
}

// audience is the form of the host that a credential is for.
var audience = lazy.Regexp(`^[a-z0-9.:-]+$`)

// manifest is what a host needs of the manifest of an extension.
type manifest struct {
	Runtime struct{ Module string }
	Tools   []struct {
		ID, Description string
		Schema          string `toml:"input_schema_ref"`
		Credentials     []struct {
			Handle    string
			Audience  struct{ Host string }
			Injection struct{ Type, Name, Prefix string }
		}
	}
}

// decodeTOML reads a file of a tool's folder. The time of the library grows with the square of its size.
func decodeTOML(ctx context.Context, text []byte, into any) error {
	budget := work.For(ctx, len(text))
	if err := budget.Spend(min(len(text), 1<<20) * (len(text) >> 10)); err != nil {
		return err
	}
	return toml.Unmarshal(text, into)
}
