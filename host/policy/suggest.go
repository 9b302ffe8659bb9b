package policy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
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
	s := newSuggestion(uses)
	var b bytes.Buffer
	fmt.Fprintf(&b, "# yaml-language-server: $schema=%s\nversion: %q\n", SchemaURL, Version)
	fmt.Fprintf(&b, "permissions:\n  network:\n    allow:%s\n", s.rules())
	fmt.Fprintf(&b, "  tools:%s\n", s.toolNames())
	b.WriteString(s.calls.limits())
	b.WriteString(s.bindings())
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
	parts := []string{"host: " + quoted(r.Host)}
	list := func(key string, items []string) {
		if len(items) > 0 {
			for i := range items {
				items[i] = quoted(items[i])
			}
			parts = append(parts, key+": ["+strings.Join(items, ", ")+"]")
		}
	}
	if !slices.Equal(r.Schemes, []string{"https"}) {
		list("schemes", slices.Clone(r.Schemes))
	}
	var ports []string
	for _, p := range r.Ports {
		ports = append(ports, strconv.Itoa(int(p)))
	}
	if len(ports) > 0 {
		parts = append(parts, "ports: ["+strings.Join(ports, ", ")+"]")
	}
	list("methods", slices.Clone(r.Methods))
	list("paths", slices.Clone(r.Paths))
	list("headers", slices.Clone(r.Headers))
	list("tools", slices.Clone(r.Tools))
	if r.MaxCalls > 0 {
		parts = append(parts, fmt.Sprintf("max_calls: %d", r.MaxCalls))
	}
	if r.MaxBytes > 0 {
		parts = append(parts, fmt.Sprintf("max_bytes: %d", r.MaxBytes))
	}
	if r.Private {
		parts = append(parts, "private: true")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// quoted quotes a text unless it is a word that needs no quotes.
func quoted(s string) string {
	word := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '/' || r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9'
	}
	first := s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z' || s[0] == '/')
	if first && !strings.ContainsFunc(s, func(r rune) bool { return !word(r) }) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// yamlWords are words that some YAML parsers do not read as strings.
var yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// suggestion collects the rules, secrets and limits of a run.
type suggestion struct {
	rulesOf map[string]*Rule  // by the parts that their requests share
	bytes   map[string]uint64 // so far, with the keys of rulesOf
	order   []string
	tools   map[string]bool
	calls   used
	secrets map[egress.Placeholder]map[string]bool // audiences
}

func newSuggestion(uses []Use) *suggestion {
	s := &suggestion{
		rulesOf: map[string]*Rule{}, bytes: map[string]uint64{}, tools: map[string]bool{}, secrets: map[egress.Placeholder]map[string]bool{},
	}
	for _, use := range uses {
		switch {
		case use.Arguments != nil:
			s.tools[use.Tool] = true
		case use.Request != nil:
			s.request(*use.Request, use.Response)
		}
		if use.Sandboxed {
			s.calls.add(use)
		}
	}
	return s
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
		if s.secrets[p] == nil {
			s.secrets[p] = map[string]bool{}
		}
		_, audience, _ := strings.Cut(r.Access.Origin(), "://")
		s.secrets[p][audience] = true
	}
}

func (s *suggestion) rules() string {
	if len(s.order) == 0 {
		return " []"
	}
	var b strings.Builder
	for _, key := range s.order {
		b.WriteString("\n      - " + s.rulesOf[key].YAML())
	}
	return b.String()
}

func (s *suggestion) toolNames() string {
	if len(s.tools) == 0 {
		return " {}"
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.tools)) {
		b.WriteString("\n    " + quoted(name) + ": {}")
	}
	return b.String()
}

func (s *suggestion) bindings() string {
	var lines []string
	for p, audience := range s.secrets {
		place := map[string]string{egress.PlaceHeader: "header: ", egress.PlaceQuery: "query: ", egress.PlaceBody: "body: true"}[p.Place]
		if p.Field != "" {
			place += quoted(p.Field)
		}
		var hosts []string
		for _, host := range slices.Sorted(maps.Keys(audience)) {
			hosts = append(hosts, quoted(host))
		}
		lines = append(lines, fmt.Sprintf("  - {name: %s, audience: [%s], %s}\n", quoted(p.Name), strings.Join(hosts, ", "), place))
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	return "secrets:\n" + strings.Join(lines, "")
}

// used is the largest use of each limit by a call of a sandboxed tool.
type used struct {
	any        bool // there was a call
	fuel       uint64
	memory     uint64
	input      uint64
	log        uint64
	effects    Used
	unreadable bool // the size of some log is unknown
}

func (u *used) add(use Use) {
	u.any = true
	u.fuel, u.memory = max(u.fuel, use.Meter.Fuel), max(u.memory, use.Meter.PeakMemory)
	u.input = max(u.input, uint64(len(use.Arguments)))
	u.log = max(u.log, uint64(len(use.Meter.Log)))
	u.effects.Calls, u.effects.Bytes = max(u.effects.Calls, use.Effects.Calls), max(u.effects.Bytes, use.Effects.Bytes)
	u.unreadable = u.unreadable || strings.ContainsRune(use.Meter.Log, utf8.RuneError) // it replaces bytes that are not UTF-8
}

// limits returns the limits in the form of a file. A call without fuel or memory ended before it began, or its
// process died with its consumption unknown.
func (u *used) limits() string {
	if !u.any {
		return ""
	}
	var parts []string
	if u.fuel > 0 {
		parts = append(parts, fmt.Sprintf("fuel: %d", u.fuel))
	}
	if u.memory > 0 {
		parts = append(parts, fmt.Sprintf("memory: %dKiB", wasm.Pages(u.memory)*(wasm.PageSize>>10)))
	}
	parts = append(parts, fmt.Sprintf("input: %d", max(u.input, 1)))
	if !u.unreadable {
		parts = append(parts, fmt.Sprintf("log: %d", max(u.log, 1)))
	}
	parts = append(parts, fmt.Sprintf("effects: %d", max(u.effects.Calls, 1)), fmt.Sprintf("effect_bytes: %d", max(u.effects.Bytes, 1)))
	return "resources:\n  # What the run used. Raise the bounds, for other inputs.\n  limits: {" + strings.Join(parts, ", ") + "}\n"
}
