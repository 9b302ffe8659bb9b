package policy

import (
	"fmt"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
)

// Version is the version of the dialect.
const Version = "1.0"

// Policy is a checked policy from a file. It is immutable.
type Policy struct {
	// File is the name of the file, for messages.
	File string

	// Description is the description in the file.
	Description string

	// Network has the rules for requests. If it is empty, no request is allowed.
	Network []Rule

	// Tools has the rules for calls by tool name, with "*" for all tools. Nil means that the policy does not restrict
	// calls. Otherwise tools without an entry cannot be called.
	Tools map[string]ToolRule

	// Limits bound each call; zero fields set no limit. See [Narrow].
	Limits event.SandboxLimits

	// Secrets describes where secrets may be sent.
	Secrets []Binding

	none   bool // see None
	lines  lines
	digest canon.Hash
	size   int
}

// Load reads a policy from a file. An error in its content is a [*config.Error].
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
		panic(err) // built into the program
	}
	p.none = true
	return p
}

// Opens reports whether the policy can allow any request of the tool.
func (p *Policy) Opens(tool string) bool {
	return slices.ContainsFunc(p.Network, func(r Rule) bool { return r.isFor(tool) })
}

// Size returns the approximate size of the policy in memory, in bytes: at most 37 MB.
func (p *Policy) Size() int { return p.size }

// Digest identifies the meaning of the policy: BLAKE3-256 of its canonical form (spec/policy.md). The file's name,
// comments, order of keys and lines do not affect it. The order of rules does, since decisions number them.
func (p *Policy) Digest() canon.Hash { return p.digest }

// canonical is the hashed form of a policy.
type canonical struct {
	Version string              `cbor:"version"`
	Network []Rule              `cbor:"network,omitempty"`
	Tools   map[string]ToolRule `cbor:"tools"`
	Limits  event.SandboxLimits `cbor:"limits"`
	Secrets []Binding           `cbor:"secrets,omitempty"`
}

// setDigest computes the digest.
func (p *Policy) setDigest() error {
	form, err := canon.Marshal(canonical{Version, p.Network, p.Tools, p.Limits, p.Secrets})
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	p.digest = canon.Sum(form)
	return nil
}
