package policy

import (
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/internal/wasm"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/egress"
)

// document is what stands in a file.
type document struct {
	Version     version `yaml:"version,required"`
	Description string  `yaml:"description"`
	Permissions struct {
		Network struct {
			Allow []Rule `yaml:"allow"`
		} `yaml:"network"`
		Tools toolRules `yaml:"tools"`
	} `yaml:"permissions"`
	Resources struct {
		Limits limits `yaml:"limits"`
	} `yaml:"resources"`
	Secrets []Binding `yaml:"secrets"`
}

// policy returns what the document says.
func (d *document) policy(name string) (*Policy, error) {
	p := &Policy{
		File: name, Description: d.Description, Network: d.Permissions.Network.Allow, Tools: d.Permissions.Tools,
		Limits: d.Resources.Limits.sandbox(), Secrets: d.Secrets,
	}
	return p, p.seal()
}

// version is the version of the dialect, in quotes: without them it is a number.
type version string

// DecodeYAML implements [config.Decoder].
func (v *version) DecodeYAML(n *config.Node) error {
	return takeText(n, v, func(text string) bool { return text == Version }, `write version: "`+Version+`", with the quotes`, "this must be the version of the format")
}

// limits are event.SandboxLimits in a file.
type limits struct {
	Fuel        config.Count  `yaml:"fuel"`
	Memory      config.Size   `yaml:"memory"`
	Deadline    config.Period `yaml:"deadline"`
	Input       config.Size   `yaml:"input"`
	Output      config.Size   `yaml:"output"`
	Log         config.Size   `yaml:"log"`
	Effects     config.Count  `yaml:"effects"`
	EffectBytes config.Size   `yaml:"effect_bytes"`
}

// CheckYAML implements [config.Checker].
func (l *limits) CheckYAML(n *config.Node) error {
	if l.Memory > wasm.MaxPages*wasm.PageSize {
		return n.Get("memory").Errorf("", "a module has at most 4GiB")
	}
	return nil
}

func (l limits) sandbox() event.SandboxLimits {
	return event.SandboxLimits{
		Fuel: uint64(l.Fuel), MemoryPages: uint32(wasm.Pages(uint64(l.Memory))),
		TimeoutMs:  time.Duration(l.Deadline).Milliseconds(),
		InputBytes: uint64(l.Input), OutputBytes: uint64(l.Output), LogBytes: uint64(l.Log),
		Effects: uint64(l.Effects), EffectBytes: uint64(l.EffectBytes),
	}
}

// Narrow returns the limits of a call under policies: for each bound the smallest
// value that l or a policy names. A policy that is nil, or that does not name a bound,
// leaves it as it is; no policy can widen one. A bound that is zero in l is none, so a
// caller with defaults fills them in before.
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
