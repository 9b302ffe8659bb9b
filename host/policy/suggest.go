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
	"github.com/starling-host/starling/host/internal/wasm"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/egress"
)

// SchemaURL is where editors find the schema.
const SchemaURL = "https://raw.githubusercontent.com/starling-host/starling/main/spec/policy.schema.json"

// Suggest returns the file of the smallest policy under which a recorded run could
// have done what it did: the tools that were called, the requests that were made,
// as often as they were and with as many bytes, and what a call of a sandboxed tool
// used at most. What was denied is not in it. It is a beginning: paths with ids in
// them, for instance, want a *, and bytes and fuel some room for other days.
//
// It leaves open what a log does not tell: the deadline, since how long a call takes
// is another thing on another machine, and the bytes of the document that a guest
// returned, of which the log has the result in canonical form. A limit of a policy is
// 1 at least, and so is that of something which no call used.
//
// It fails if no policy can say what the run did, as when it called a tool of a name that
// policies do not take.
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
		return nil, fmt.Errorf("policy: no policy can say what the run did: %w", err)
	}
	return b.Bytes(), nil
}

// RuleFor returns a rule that allows a request and as little else as a rule can.
func RuleFor(r Request) Rule {
	rule := Rule{Host: r.Host, Schemes: []string{r.Scheme}, Private: isPrivate(r.Host)}
	if methodPattern.MatchString(r.Method) {
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
	return rule
}

// isPrivate reports whether a host needs a rule that opens private addresses. Of a
// name only that of this machine tells.
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

// quoted writes a text in quotes unless it is a word that needs none.
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

// yamlWords are words that some reader of YAML takes for something else.
var yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// suggestion is what is known of a run.
type suggestion struct {
	rulesOf map[string]*Rule  // by what is the same of their requests
	bytes   map[string]uint64 // so far, as rulesOf
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

// request adds a request to the rule that it shares everything with but the path.
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
	have.MaxBytes = s.bytes[key] + r.Bytes + max(response, 1) // a request is made if there is room for a response
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

// used is the most that a call of a sandboxed tool used of each limit.
type used struct {
	any        bool // there was such a call
	fuel       uint64
	memory     uint64
	input      uint64
	log        uint64
	effects    Used
	unreadable bool // how many bytes some log had is not known
}

func (u *used) add(use Use) {
	u.any = true
	u.fuel, u.memory = max(u.fuel, use.Meter.Fuel), max(u.memory, use.Meter.PeakMemory)
	u.input = max(u.input, uint64(len(use.Arguments)))
	u.log = max(u.log, uint64(len(use.Meter.Log)))
	u.effects.Calls, u.effects.Bytes = max(u.effects.Calls, use.Effects.Calls), max(u.effects.Bytes, use.Effects.Bytes)
	u.unreadable = u.unreadable || strings.ContainsRune(use.Meter.Log, utf8.RuneError) // which stands for bytes that are no text
}

// limits returns the limits as they stand in a file. A call without fuel or memory
// ended before it began, or its process died, and what it had used is not known.
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
	return "resources:\n  limits: {" + strings.Join(parts, ", ") + "}\n"
}
