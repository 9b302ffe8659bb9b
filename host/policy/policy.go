package policy

import (
	"fmt"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/config"
)

// Version is the version of the dialect.
const Version = "1.0"

// Policy is a policy as its file has it, checked. It is immutable.
type Policy struct {
	// File is the name of the file, for a reader.
	File string

	// Description is the file's own.
	Description string

	// Network are the rules about requests. Without one, none is allowed.
	Network []Rule

	// Tools are the rules about calls by the name of the tool, or "*" for all. Nil
	// means that the policy says nothing about calls; with a map that is not nil,
	// a tool that it does not name cannot be called.
	Tools map[string]ToolRule

	// Limits are bounds of each call; zero fields are none. See [Narrow].
	Limits event.SandboxLimits

	// Secrets say where secrets may be sent.
	Secrets []Binding

	none   bool // see None
	lines  lines
	digest canon.Hash
	size   int
}

// Load reads a policy from a file. What is wrong with its content is a
// [*config.Error].
func Load(path string) (*Policy, error) {
	data, err := config.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return Parse(path, data)
}

// None returns an absent policy. It allows no request, and its reason is that there is no
// policy.
func None() *Policy {
	p, err := Parse("no policy", []byte("version: \""+Version+"\"\n"))
	if err != nil {
		panic(err) // it is ours
	}
	p.none = true
	return p
}

// Opens reports whether there are requests that the policy allows a tool.
func (p *Policy) Opens(tool string) bool {
	return slices.ContainsFunc(p.Network, func(r Rule) bool { return r.isFor(tool) })
}

// Size returns about how many bytes the policy takes: at most 37 MB.
func (p *Policy) Size() int { return p.size }

// Digest is the identity of what the policy says: BLAKE3-256 of its canonical form
// (spec/policy.md). The name of the file, comments, the order of keys and the lines
// are no part of it; the order of rules is, since decisions number them.
func (p *Policy) Digest() canon.Hash { return p.digest }

// canonical is the form of a policy that is hashed.
type canonical struct {
	Version string              `cbor:"version"`
	Network []Rule              `cbor:"network,omitempty"`
	Tools   map[string]ToolRule `cbor:"tools"`
	Limits  event.SandboxLimits `cbor:"limits"`
	Secrets []Binding           `cbor:"secrets,omitempty"`
}

// seal computes the digest.
func (p *Policy) seal() error {
	form, err := canon.Marshal(canonical{Version, p.Network, p.Tools, p.Limits, p.Secrets})
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	p.digest = canon.Sum(form)
	return nil
}
