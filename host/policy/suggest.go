package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/runtime/egress"
)

// SchemaURL is the address of the schema, for editors.
const SchemaURL = "https://raw.githubusercontent.com/starling-host/starling/main/spec/policy.schema.json"

// Suggest returns the file of the smallest policy under which a recorded run could have done the same: the tools
// called, the requests made with their numbers and bytes, and the largest consumption by a call of a sandboxed tool.
// Denied actions are left out. The result is a draft: for example, paths that contain ids need a *, and bytes and
// fuel some margin for other days.
//
// It leaves out what a log does not show: the deadline, because the duration of a call depends on the machine, and
// the bytes of the document that a guest returned, because the log has its result in canonical form. Limits of a
// policy are at least 1, even for resources that no call used.
//
// It fails if no policy can describe the run, for example if it called a tool whose name policies do not accept.
func Suggest(events []event.Event) ([]byte, error) {
	uses, err := Uses(events)
	if err != nil {
		return nil, err
	}
	s := suggestion{rulesOf: map[string]*Rule{}, bytes: map[string]uint64{}, secrets: map[egress.Placeholder]*Binding{}}
	tools := map[string]bool{}
	for _, use := range uses {
		switch {
		case use.Arguments != nil:
			tools[use.Tool] = true
		case use.Request != nil:
			s.request(*use.Request, use.Response)
		}
		if use.Sandboxed {
			s.calls.add(use)
		}
	}
	rules := lists.Map(s.order, func(key string) string { return "\n      - " + s.rulesOf[key].YAML() })
	names := lists.Map(slices.Sorted(maps.Keys(tools)), func(name string) string { return "\n    " + config.Flow(name) + ": {}" })
	secrets := lists.Map(slices.Collect(maps.Values(s.secrets)), func(b *Binding) string { return "\n  - " + config.Flow(b) })
	slices.Sort(secrets)
	var b bytes.Buffer
	fmt.Fprintf(&b, "# yaml-language-server: $schema=%s\nversion: %q\n", SchemaURL, Version)
	fmt.Fprintf(&b, "permissions:\n  network:\n    allow:%s\n", cmp.Or(strings.Join(rules, ""), " []"))
	fmt.Fprintf(&b, "  tools:%s\n", cmp.Or(strings.Join(names, ""), " {}"))
	b.WriteString(s.calls.limits())
	if len(secrets) > 0 {
		fmt.Fprintf(&b, "secrets:%s\n", strings.Join(secrets, ""))
	}
	if _, err := Parse("the suggestion", b.Bytes()); err != nil {
		if bad, ok := errors.AsType[*config.Error](err); ok {
			err = errors.New(bad.Message())
		}
		return nil, fmt.Errorf("policy: no policy can describe the run: %w", err)
	}
	return b.Bytes(), nil
}

// RuleFor returns the narrowest rule that allows a request.
func RuleFor(r Request) Rule {
	rule := Rule{Host: r.Host, Schemes: []string{r.Scheme}, Private: isPrivate(r.Host)}
	if methodPattern().MatchString(r.Method) {
		rule.Methods = []string{r.Method}
	}
	if r.Port != (map[string]uint16{"http": 80, "https": 443})[r.Scheme] {
		rule.Ports = []uint16{r.Port}
	}
	if _, ok := splitPath(r.Path); ok {
		rule.Paths = []string{strings.ReplaceAll(r.Path, "*", "%2A")}
	}
	if r.Tool != "" {
		rule.Tools = []string{r.Tool}
	}
	for _, name := range r.Access.Headers {
		if !egress.OrdinaryHeader(name) {
			rule.Headers = append(rule.Headers, name)
		}
	}
	return rule
}

// isPrivate reports whether a host needs a rule that allows private addresses. Of names, it recognizes only the one
// of this machine.
func isPrivate(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && (addr.IsLoopback() || addr.IsPrivate())
}

// YAML returns the rule as an entry of permissions.network.allow.
func (r Rule) YAML() string {
	if slices.Equal(r.Schemes, []string{"https"}) {
		r.Schemes = nil
	}
	return config.Flow(r)
}

// suggestion collects the rules, secrets and limits of a run.
type suggestion struct {
	rulesOf map[string]*Rule  // by the parts that their requests share
	bytes   map[string]uint64 // so far, with the keys of rulesOf
	order   []string
	calls   used
	secrets map[egress.Placeholder]*Binding
}

// request adds a request to the rule that equals it in everything but the path.
func (s *suggestion) request(r Request, response uint64) {
	rule := RuleFor(r)
	paths := rule.Paths
	rule.Paths = nil
	key := fmt.Sprint(rule.YAML(), paths == nil)
	have := s.rulesOf[key]
	if have == nil {
		have = &rule
		s.rulesOf[key], s.order = have, append(s.order, key)
	}
	if len(paths) > 0 && !slices.Contains(have.Paths, paths[0]) {
		have.Paths = append(have.Paths, paths[0])
	}
	have.MaxCalls++
	have.MaxBytes = s.bytes[key] + r.Bytes + max(response, 1) // a request needs room for a response too
	s.bytes[key] += r.Bytes + response
	for _, p := range r.Access.Secrets {
		b := s.secrets[p]
		if b == nil {
			b = &Binding{Name: p.Name, Body: p.Place == egress.PlaceBody}
			switch p.Place {
			case egress.PlaceHeader:
				b.Header = p.Field
			case egress.PlaceQuery:
				b.Query = p.Field
			}
			s.secrets[p] = b
		}
		_, audience, _ := strings.Cut(r.Access.Origin(), "://")
		if at, found := slices.BinarySearch(b.Audience, audience); !found {
			b.Audience = slices.Insert(b.Audience, at, audience)
		}
	}
}

// used is the largest use of each limit by a call of a sandboxed tool. A call without fuel or memory
// ended before it began, or its process died with its consumption unknown.
type used struct {
	Fuel        uint64 `yaml:"fuel"`
	Memory      string `yaml:"memory"`
	Input       uint64 `yaml:"input"`
	Log         uint64 `yaml:"log"` // zero if the size of some log is unknown
	Effects     uint64 `yaml:"effects"`
	EffectBytes uint64 `yaml:"effect_bytes"`

	peak       uint64 // of the memory
	unreadable bool
}

func (u *used) add(use Use) {
	u.Fuel, u.peak = max(u.Fuel, use.Meter.Fuel), max(u.peak, use.Meter.PeakMemory)
	u.Input = max(u.Input, uint64(len(use.Arguments)), 1)
	u.Effects, u.EffectBytes = max(u.Effects, use.Effects.Calls, 1), max(u.EffectBytes, use.Effects.Bytes, 1)
	u.Log = max(u.Log, uint64(len(use.Meter.Log)), 1)
	u.unreadable = u.unreadable || strings.ContainsRune(use.Meter.Log, utf8.RuneError) // it replaces bytes that are not UTF-8
}

// limits returns the limits in the form of a file, if there was a call.
func (u used) limits() string {
	if u.Input == 0 {
		return ""
	}
	if u.peak > 0 {
		u.Memory = fmt.Sprintf("%dKiB", wasm.Pages(u.peak)*(wasm.PageSize>>10))
	}
	if u.unreadable {
		u.Log = 0
	}
	return "resources:\n  # What the run used. Raise the bounds, for other inputs.\n  limits: " + config.Flow(u) + "\n"
}
