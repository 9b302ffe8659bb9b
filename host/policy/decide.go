package policy

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
)

// The sides that have a policy.
const (
	Operator = "operator"
	Tenant   = "tenant"
)

// Request is a request that is decided about.
type Request struct {
	egress.Access

	// Tool is the tool that makes it, as the agent calls it.
	Tool string

	// Bytes is the size of the request as it is recorded.
	Bytes uint64
}

// Place names a rule of a side.
type Place struct {
	Side string
	Rule int // from 1
}

// Used is what a run has used of a rule.
type Used struct {
	Calls uint64
	Bytes uint64 // of requests and of the responses to them, as they are recorded
}

// Usage is what a run has used of the rules. Nil is nothing.
type Usage map[Place]Used

// Decision is what the policies say together.
type Decision struct {
	event.Verdicts

	// File is the name of the file of the policy that was asked last. It is not
	// recorded.
	File string

	// Line is where in it stands what decided, or if nothing did, what lacks a rule
	// that would have allowed it. It is not recorded: a verdict has only the former.
	Line int

	// Ask is the first side whose rule lets the user decide, see [Asker]. Empty for none. It
	// is not recorded: the answer is, in the verdict of that side.
	Ask string

	// Grant has the conditions of a request that is allowed. What it has of
	// secrets are none but Plain; a [Run] adds the values.
	Grant egress.Grant
}

// side is a policy and whose it is.
type side struct {
	name   string
	policy *Policy
}

// sides returns the policies that are there, in the order in which they are asked.
func sides(operator, tenant *Policy) []side {
	all := []side{{Operator, operator}, {Tenant, tenant}}
	return slices.DeleteFunc(all, func(s side) bool { return s.policy == nil })
}

func (s side) verdict(line int, denied string) event.Verdict {
	digest := s.policy.Digest()
	return event.Verdict{Policy: digest[:], Side: s.name, Line: uint32(line), Denied: denied}
}

// Decide decides about a request. A policy that is nil is not asked; of two both
// must allow it, each by a rule of its own, and each rule counts for itself. The
// decision is a function of the arguments.
//
// Private addresses are the operator's to open: its rule must say so, and so must
// the tenant's, if there is one.
func Decide(operator, tenant *Policy, r Request, used Usage) Decision {
	var d Decision
	d.Grant.Private = operator != nil
	all := sides(operator, tenant)
	for i, s := range all {
		v, rule, line := s.request(r, used)
		d.Verdicts, d.File, d.Line = append(d.Verdicts, v), s.policy.File, line
		if v.Denied != "" {
			return Decision{Verdicts: d.Verdicts, File: d.File, Line: line}
		}
		d.Grant.Private = d.Grant.Private && rule.Private
		d.Grant.Limits = d.Grant.Limits.And(rule.limits(i < len(all)-1))
		if rule.Ask && d.Ask == "" {
			d.Ask = s.name
		}
		if rule.MaxBytes > 0 {
			left := int64(rule.MaxBytes - used[Place{s.name, int(v.Rule)}].Bytes - r.Bytes)
			if d.Grant.MaxResponse == 0 || left < d.Grant.MaxResponse {
				d.Grant.MaxResponse = left
			}
		}
	}
	return d.secrets(operator, tenant, r)
}

// request asks one side about a request. The line is that of its [Decision].
func (s side) request(r Request, used Usage) (v event.Verdict, allows Rule, line int) {
	if _, ok := s.policy.toolRules(r.Tool); !ok {
		return s.verdict(0, fmt.Sprintf("it does not name the tool %s", r.Tool)), Rule{}, s.policy.lines.tools
	}
	if s.policy.none {
		return s.verdict(0, "it is not set, so it allows no request"), Rule{}, 0
	}
	best, bestLine := miss{}, 0
	segments, readable := splitPath(r.Path)
	path := func(p Pattern) bool { return readable && p.match(segments) }
	for i, rule := range s.policy.Network {
		m := rule.misses(r, path, used[Place{s.name, i + 1}])
		if m.why == "" {
			v := s.verdict(rule.Line, "")
			v.Rule = uint32(i + 1)
			return v, rule, rule.Line
		}
		if m.rank == missesPath && !readable {
			m.why = "does not allow a path that servers could read in two ways"
		}
		if m.rank > best.rank {
			best, bestLine = miss{m.rank, fmt.Sprintf("rule %d %s", i+1, m.why)}, rule.Line
		}
	}
	if best.why == "" {
		return s.verdict(0, fmt.Sprintf("no rule names %s", r.Host)), Rule{}, s.policy.lines.network
	}
	return s.verdict(bestLine, best.why), Rule{}, bestLine
}

// miss is why a rule does not allow a request. The higher the rank, the more of the
// rule agreed; of a rule about another host nothing is said.
type miss struct {
	rank int
	why  string
}

// missesPath is the rank of a rule of which only the path disagrees, or amounts.
const missesPath = 5

// misses returns the first thing in which the request is not what the rule allows.
// Whether the path of the request is of a pattern, path says.
func (r *Rule) misses(q Request, path func(Pattern) bool, used Used) miss {
	switch {
	case !r.host.MatchesHost(q.Host):
		return miss{0, "is about another host"}
	case !r.isFor(q.Tool):
		return miss{1, fmt.Sprintf("is for %s, not for %s", strings.Join(r.Tools, ", "), q.Tool)}
	case !slices.Contains(r.Schemes, q.Scheme):
		return miss{2, fmt.Sprintf("allows %s, not %s", strings.Join(r.Schemes, " and "), q.Scheme)}
	case !r.port(q):
		return miss{3, fmt.Sprintf("does not allow port %d", q.Port)}
	case len(r.Methods) > 0 && !slices.Contains(r.Methods, q.Method):
		return miss{4, fmt.Sprintf("allows %s, not %s", strings.Join(r.Methods, ", "), q.Method)}
	case len(r.patterns) > 0 && !slices.ContainsFunc(r.patterns, path):
		return miss{missesPath, "does not allow this path"}
	case r.MaxCalls > 0 && used.Calls >= r.MaxCalls:
		return miss{6, fmt.Sprintf("allows %d requests in a run, and they have been made", r.MaxCalls)}
	case r.MaxBytes > 0 && (used.Bytes >= r.MaxBytes || q.Bytes >= r.MaxBytes-used.Bytes):
		return miss{7, fmt.Sprintf("allows %d bytes in a run, and too few are left", r.MaxBytes)}
	}
	return miss{}
}

func (r *Rule) port(q Request) bool {
	if len(r.Ports) > 0 {
		return slices.Contains(r.Ports, q.Port)
	}
	return q.Port == map[string]uint16{"http": 80, "https": 443}[q.Scheme]
}

// secrets decides about the placeholders of a request that is allowed, and whether
// its response must be such that secrets can be found in it.
func (d Decision) secrets(operator, tenant *Policy, r Request) Decision {
	all := sides(operator, tenant)
	for _, p := range r.Access.Secrets {
		bound := false
		for i, s := range all {
			binding, why := s.policy.binding(p, r.Access, d.Grant.Private)
			switch {
			case why == "":
				bound = true
			case binding != nil || len(s.policy.Secrets) > 0:
				return d.withoutSecret(all, i, binding, why)
			}
		}
		if !bound && len(all) > 0 {
			return d.withoutSecret(all, len(all)-1, nil, fmt.Sprintf("it has no secret %s", p.Name))
		}
	}
	for _, s := range all {
		d.Grant.Plain = d.Grant.Plain || slices.ContainsFunc(s.policy.Secrets, func(b Binding) bool { return b.forHost(r.Access) })
	}
	return d
}

// withoutSecret returns the decision with the denial of one of the sides, by the binding
// that comes closest if there is one.
func (d Decision) withoutSecret(all []side, i int, closest *Binding, why string) Decision {
	s := all[i]
	recorded, line := 0, s.policy.lines.secrets
	if closest != nil {
		recorded, line = closest.Line, closest.Line
	}
	d.Verdicts[i] = s.verdict(recorded, why)
	return Decision{Verdicts: d.Verdicts[:i+1], File: s.policy.File, Line: line}
}

// binding returns the binding that lets a secret be where its placeholder stands;
// or why none does, and the one that comes closest.
func (p *Policy) binding(at egress.Placeholder, a egress.Access, private bool) (closest *Binding, why string) {
	why = fmt.Sprintf("it has no secret %s", at.Name)
	rank := 0
	note := func(r int, b *Binding, format string, args ...any) {
		if r > rank {
			rank, closest, why = r, b, fmt.Sprintf(format, args...)
		}
	}
	for i := range p.Secrets {
		b := &p.Secrets[i]
		switch {
		case b.Name != at.Name:
		case !b.forHost(a):
			note(1, b, "the secret %s is not for %s", at.Name, a.Origin())
		case !b.at(at):
			note(2, b, "the secret %s may not stand in %s", at.Name, place(at))
		case a.Scheme != "https" && !private:
			note(3, b, "the secret %s is not sent without TLS", at.Name)
		default:
			return b, ""
		}
	}
	return closest, why
}

// place names where a placeholder stands.
func place(p egress.Placeholder) string {
	switch p.Place {
	case egress.PlaceHeader:
		return "the header " + textproto.CanonicalMIMEHeaderKey(p.Field)
	case egress.PlaceQuery:
		return "this parameter of the query"
	}
	return "the body"
}

// toolRules returns what the policy has about a tool: what holds for all, and what
// holds for this one. It is false when the tool cannot be called.
func (p *Policy) toolRules(tool string) (rules []ToolRule, ok bool) {
	if p.Tools == nil {
		return nil, true
	}
	for _, name := range []string{AllTools, tool} {
		if rule, found := p.Tools[name]; found {
			rules = append(rules, rule)
		}
	}
	return rules, len(rules) > 0
}

// NamesTool reports whether the policies, of which either may be nil, have rules for a tool
// or say nothing of tools.
func NamesTool(operator, tenant *Policy, tool string) bool {
	return !slices.ContainsFunc(sides(operator, tenant), func(s side) bool { _, ok := s.policy.toolRules(tool); return !ok })
}

// DecideCall decides about a call by its arguments, any JSON document. A policy
// that is nil is not asked, nor is one that says nothing about tools; if there is
// no other, there is nothing to decide, and the decision has no verdicts and ok is
// false.
func DecideCall(operator, tenant *Policy, tool string, arguments []byte) (d Decision, ok bool) {
	for _, s := range sides(operator, tenant) {
		if s.policy.Tools == nil {
			continue
		}
		v, ask := s.call(tool, arguments)
		if ask && d.Ask == "" {
			d.Ask = s.name
		}
		d.Verdicts, d.File, d.Line = append(d.Verdicts, v), s.policy.File, cmp.Or(int(v.Line), s.policy.lines.tools)
		if v.Denied != "" {
			break
		}
	}
	return d, len(d.Verdicts) > 0
}

// call asks one side about a call, and whether the user must confirm it.
func (s side) call(tool string, arguments []byte) (v event.Verdict, ask bool) {
	rules, ok := s.policy.toolRules(tool)
	if !ok {
		return s.verdict(0, fmt.Sprintf("it does not name the tool %s", tool)), false
	}
	clean, err := canon.JSON(arguments)
	if err != nil {
		return s.verdict(0, "the arguments are not JSON"), false
	}
	for _, rule := range rules {
		ask = ask || rule.Ask
		if why, line := rule.violated(clean); why != "" {
			return s.verdict(line, why), false
		}
	}
	return s.verdict(rules[len(rules)-1].Line, ""), ask
}
