package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/spec"
)

var schema = sync.OnceValue(func() *config.Schema {
	return config.MustSchema(spec.PolicySchema(), config.Formats{
		"egress-host": config.Format(egress.ParseRule), "path-pattern": config.Format(ParsePattern), "re2": checkPattern,
	})
})

// document is the content of a policy file.
type document struct {
	Version     string `yaml:"version"`
	Description string `yaml:"description"`
	Permissions struct {
		Network struct {
			Allow []struct {
				Rule
				Timeout time.Duration `yaml:"timeout"`
			} `yaml:"allow"`
		} `yaml:"network"`
		Tools map[string]ToolRule `yaml:"tools"`
	} `yaml:"permissions"`
	Resources struct {
		Limits config.CallLimits `yaml:"limits"`
	} `yaml:"resources"`
	Secrets []Binding `yaml:"secrets"`
}

// Parse reads a policy from the content of a file. The name of the file appears in errors and decisions.
func Parse(name string, data []byte) (*Policy, error) {
	var d document
	root, err := schema().Load(name, data, &d)
	if err != nil {
		return nil, err
	}
	p := &Policy{
		File: name, Description: d.Description, Tools: d.Permissions.Tools, Limits: d.Resources.Limits.Sandbox(), Secrets: d.Secrets,
		lines: map[string]int{},
	}
	for _, path := range []string{"permissions network allow", "permissions tools", "secrets", "resources limits fuel", "resources limits memory",
		"resources limits input", "resources limits effects", "resources limits effect_bytes"} {
		keys := strings.Fields(path)
		p.lines[keys[len(keys)-1]] = lineOf(root, keys...)
	}
	for i, at := range root.At("permissions", "network", "allow").Items() {
		rule := d.Permissions.Network.Allow[i]
		rule.TimeoutMs = rule.Timeout.Milliseconds()
		rule.compile(at)
		p.Network = append(p.Network, rule.Rule)
	}
	schemas, b := 0, work.For(context.Background(), len(data))
	for key, at := range root.At("permissions", "tools").Pairs() {
		name, _ := key.Text()
		rule := p.Tools[name]
		rule.Line = key.Line()
		if err := rule.compile(b, at.At("arguments")); err != nil {
			return nil, err
		}
		schemas += rule.schema.Size()
		p.Tools[name] = rule
	}
	for i, at := range root.At("secrets").Items() {
		p.Secrets[i].compile(at)
	}
	p.size = 16*len(data) + schemas // as measured
	form, err := canon.Marshal(canonical{Version, p.Network, p.Tools, p.Limits, p.Secrets})
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	p.digest = canon.Sum(form)
	return p, nil
}

// lineOf returns the line of the last key on a path that exists, or 1 if the first one is missing.
func lineOf(n *config.Node, path ...string) int {
	line := 1
	for _, want := range path {
		var next *config.Node
		for key, value := range n.Pairs() {
			if text, _ := key.Text(); text == want {
				line, next = key.Line(), value
			}
		}
		n = next
	}
	return line
}

// Narrow returns the limits of a call under policies: for each limit, the smallest value that l or a policy sets. Nil
// policies, and limits that a policy does not set, change nothing; no policy can raise a limit. Zero in l means no
// limit, so a caller fills in its defaults first.
func Narrow(l event.SandboxLimits, policies ...*Policy) event.SandboxLimits {
	for _, p := range policies {
		if p == nil {
			continue
		}
		l.Fuel = egress.Least(l.Fuel, p.Limits.Fuel)
		l.MemoryPages = egress.Least(l.MemoryPages, p.Limits.MemoryPages)
		l.TimeoutMs = egress.Least(l.TimeoutMs, p.Limits.TimeoutMs)
		l.InputBytes = egress.Least(l.InputBytes, p.Limits.InputBytes)
		l.OutputBytes = egress.Least(l.OutputBytes, p.Limits.OutputBytes)
		l.LogBytes = egress.Least(l.LogBytes, p.Limits.LogBytes)
		l.Effects = egress.Least(l.Effects, p.Limits.Effects)
		l.EffectBytes = egress.Least(l.EffectBytes, p.Limits.EffectBytes)
	}
	return l
}

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

	none   bool           // see None
	lines  map[string]int // where the parts of the file begin, by their keys; a missing part has the line of its nearest parent
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

// identity is the digest as events have it, which is nil without a policy. It must not be modified.
func (p *Policy) identity() []byte {
	if p == nil {
		return nil
	}
	return p.digest[:]
}

// canonical is the hashed form of a policy.
type canonical struct {
	Version string              `cbor:"version"`
	Network []Rule              `cbor:"network,omitempty"`
	Tools   map[string]ToolRule `cbor:"tools"`
	Limits  event.SandboxLimits `cbor:"limits"`
	Secrets []Binding           `cbor:"secrets,omitempty"`
}
