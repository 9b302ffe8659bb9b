package policy

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/egress"
)

// The sides, each of which has a policy.
const (
	Operator = "operator"
	Tenant   = "tenant"
)

// Request is a request to decide about.
type Request struct {
	egress.Access

	// Tool is the tool that makes the request, under the name that the agent uses.
	Tool string

	// Bytes is the size of the request as it is recorded.
	Bytes uint64
}

// Place identifies a rule of a side.
type Place struct {
	Side string
	Rule int // from 1
}

// Used is what a run has used of a rule.
type Used struct {
	Calls uint64
	Bytes uint64 // of recorded requests and responses
}

// Usage is the use of each rule by a run. Nil means no use.
type Usage map[Place]Used

// Decision is the joint decision of the policies.
type Decision struct {
	event.Verdicts

	// File is the name of the policy file that was asked last. It is not recorded.
	File string

	// Line is the line in File of the rule that decided, or else of the part that lacks a rule to
	// allow the request. It is not recorded: a verdict has only the line of a rule.
	Line int

	// Ask is the first side whose rule requires the user's confirmation (see [Asker]), or empty. It is not recorded;
	// the answer is, in the verdict of that side.
	Ask string

	// Grant has the conditions of an allowed request. Of its fields about secrets only Plain is set here; a [Run]
	// adds the values.
	Grant egress.Grant
}

// side is a policy and its owner.
type side struct {
	name   string
	policy *Policy
}

// sides returns the policies that exist, in the order in which they are asked.
func sides(operator, tenant *Policy) []side {
	all := []side{{Operator, operator}, {Tenant, tenant}}
	return slices.DeleteFunc(all, func(s side) bool { return s.policy == nil })
}

func (s side) verdict(line int, denied string) event.Verdict {
	return event.Verdict{Policy: s.policy.identity(), Side: s.name, Line: uint32(line), Denied: denied}
}

// Decide decides about a request. A nil policy is not asked; if there are two, each must allow the request by a rule
// of its own, and the request counts for both rules. The decision is a function of the arguments.
//
// Access to private addresses needs the operator's consent: its rule must allow it, and so must the rule of the
// tenant, if the tenant has a policy.
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

// request asks one side about a request. The line is for [Decision].Line.
func (s side) request(r Request, used Usage) (v event.Verdict, allows Rule, line int) {
	if _, ok := s.policy.toolRules(r.Tool); !ok {
		return s.verdict(0, fmt.Sprintf("it does not name the tool %s", r.Tool)), Rule{}, s.policy.lines["tools"]
	}
	if s.policy.none {
		return s.verdict(0, "it is not set, so it allows no request"), Rule{}, 0
	}
	best, bestLine := miss{}, 0
	segments, readable := splitPath(r.Path)
	path := func(p Pattern) bool { return readable && p.match(segments) }
	for i, rule := range s.policy.Network {
		m := rule.misses(r, path, func() string { return s.policy.strangeHeader(&rule, r.Access) }, used[Place{s.name, i + 1}])
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
		return s.verdict(0, fmt.Sprintf("no rule names %s", r.Host)), Rule{}, s.policy.lines["allow"]
	}
	return s.verdict(bestLine, best.why), Rule{}, bestLine
}

// miss is the reason why a rule does not allow a request. A higher rank means that more of the rule matched. A rule
// for another host is never mentioned.
type miss struct {
	rank int
	why  string
}

// missesPath is the lowest rank of a rule whose host, tool, scheme, port and method match.
const missesPath = 5

// misses returns the first respect in which the rule does not allow the request. The function path reports whether a
// pattern matches the path of the request; strange returns a header that the rule does not allow.
func (r *Rule) misses(q Request, path func(Pattern) bool, strange func() string, used Used) miss {
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
	}
	if header := strange(); header != "" {
		return miss{6, fmt.Sprintf("allows some methods or paths alone, and servers could take the header %s for another one: name it under headers of the rule", display.Clip(header, 100))}
	}
	switch {
	case r.MaxCalls > 0 && used.Calls >= r.MaxCalls:
		return miss{7, fmt.Sprintf("allows %d requests in a run, and they have been made", r.MaxCalls)}
	case r.MaxBytes > 0 && (used.Bytes >= r.MaxBytes || q.Bytes >= r.MaxBytes-used.Bytes):
		return miss{8, fmt.Sprintf("allows %d bytes in a run, and too few are left", r.MaxBytes)}
	}
	return miss{}
}

// strangeHeader returns a header of a request that a rule about methods or paths does not allow, or
// "". It allows the ordinary headers, those that it names, and those that have a secret of the policy.
func (p *Policy) strangeHeader(r *Rule, a egress.Access) string {
	if len(r.Methods) == 0 && len(r.patterns) == 0 {
		return ""
	}
	for _, name := range a.Headers {
		secret := func(b Binding) bool { return b.Header == name && b.forHost(a) }
		if !egress.OrdinaryHeader(name) && !slices.Contains(r.Headers, name) && !slices.ContainsFunc(p.Secrets, secret) {
			return name
		}
	}
	return ""
}

func (r *Rule) port(q Request) bool {
	if len(r.Ports) > 0 {
		return slices.Contains(r.Ports, q.Port)
	}
	return q.Port == map[string]uint16{"http": 80, "https": 443}[q.Scheme]
}

// secrets decides about the placeholders of an allowed request, and whether its response must be one in which secrets
// can be found.
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

// withoutSecret returns the decision with a denial by one of the sides, attributed to the closest binding if there is
// one.
func (d Decision) withoutSecret(all []side, i int, closest *Binding, why string) Decision {
	s := all[i]
	recorded, line := 0, s.policy.lines["secrets"]
	if closest != nil {
		recorded, line = closest.Line, closest.Line
	}
	d.Verdicts[i] = s.verdict(recorded, why)
	return Decision{Verdicts: d.Verdicts[:i+1], File: s.policy.File, Line: line}
}

// binding returns the binding that allows a secret at the position of its placeholder. If there is none, it returns
// the reason and the closest one.
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

// place describes the position of a placeholder.
func place(p egress.Placeholder) string {
	switch p.Place {
	case egress.PlaceHeader:
		return "the header " + textproto.CanonicalMIMEHeaderKey(p.Field)
	case egress.PlaceQuery:
		return "this parameter of the query"
	}
	return "the body"
}

// toolRules returns the rules for a tool: those under [AllTools] and its own. It returns false if the tool may not be
// called.
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

// NamesTool reports whether the policies, either of them possibly nil, have rules for a tool or have no rules about
// tools at all.
func NamesTool(operator, tenant *Policy, tool string) bool {
	return !slices.ContainsFunc(sides(operator, tenant), func(s side) bool { _, ok := s.policy.toolRules(tool); return !ok })
}

// DecideCall decides about a call by its arguments, any JSON document. Nil policies, and policies without rules about
// tools, are not asked. If that leaves none, the decision has no verdicts and ok is false.
func DecideCall(operator, tenant *Policy, tool string, arguments []byte) (d Decision, ok bool) {
	b := work.New(context.Background(), work.Limits{Steps: callUnits}) // a cancelled call must not be recorded as denied
	for _, s := range sides(operator, tenant) {
		if s.policy.Tools == nil {
			continue
		}
		v, ask := s.call(b, tool, arguments)
		if ask && d.Ask == "" {
			d.Ask = s.name
		}
		d.Verdicts, d.File, d.Line = append(d.Verdicts, v), s.policy.File, cmp.Or(int(v.Line), s.policy.lines["tools"])
		if v.Denied != "" {
			break
		}
	}
	return d, len(d.Verdicts) > 0
}

// call asks one side about a call, and reports whether the user must confirm it.
func (s side) call(b *work.Budget, tool string, arguments []byte) (v event.Verdict, ask bool) {
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
		if why, line := rule.violated(b, clean); why != "" {
			return s.verdict(line, why), false
		}
	}
	return s.verdict(rules[len(rules)-1].Line, ""), ask
}

// Explanation is the document of a decision about a request: what every policy says of it, and what would allow it.
type Explanation struct {
	Tool     string      `json:"tool"`
	Request  string      `json:"request"`
	Allowed  bool        `json:"allowed"`
	Verdicts []Explained `json:"verdicts"`
	Address  string      `json:"address,omitempty"`
	Refused  string      `json:"refused,omitempty"` // why the host refuses what the policies allow
	Suggest  string      `json:"suggestion,omitempty"`
	Caution  string      `json:"caution,omitempty"` // about the suggestion

	Missing []string `json:"-"` // secrets of the request that the keeper lacks, whose values were not checked
}

// Explained is the verdict of one policy.
type Explained struct {
	Side    string `json:"side"`
	File    string `json:"file"`
	Digest  string `json:"digest"`
	Allowed bool   `json:"allowed"`
	Line    int    `json:"line"`
	Rule    uint32 `json:"rule,omitempty"`
	Text    string `json:"text,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// supposed has the secrets of a keeper, and long values for those that it lacks.
type supposed struct {
	Secrets
	missing []string
}

// Secret implements [Secrets].
func (s *supposed) Secret(ctx context.Context, name string) (value []byte, ok bool, err error) {
	if value, ok, err = s.Secrets.Secret(ctx, name); ok {
		return value, ok, err
	}
	s.missing = append(s.missing, name)
	return []byte("NotTheValueOf" + strings.ReplaceAll(name, "_", "")), true, nil
}

// Explain decides about a request of a tool as a run does, and explains the decision. Every question is accepted, and
// a secret that keeper lacks has some value. The error is an [*egress.Error] if the request is malformed.
func Explain(ctx context.Context, operator, tenant *Policy, keeper Secrets, request *egress.Request, tool string) (Explanation, error) {
	access, err := request.Access()
	if err != nil {
		return Explanation{}, err
	}
	r := Request{Access: access, Tool: tool, Bytes: uint64(len(request.Text()))}
	d := Decide(operator, tenant, r, nil)
	doc := Explanation{Tool: tool, Request: r.Method + " " + access.Origin() + r.Path}
	secrets := &supposed{Secrets: keeper}
	ctx = WithAsker(ctx, func(context.Context, Question) (string, error) { return Accept, nil })
	live := egress.New(egress.Config{Authorize: NewRun(operator, tenant, secrets).Exchange(tool, int(r.Bytes))})
	refused := live.Check(ctx, request)
	doc.Allowed = refused == nil
	for _, at := range access.Secrets {
		if slices.Contains(secrets.missing, at.Name) {
			doc.Missing = append(doc.Missing, at.Name)
		}
	}
	for _, v := range d.Verdicts {
		p := map[string]*Policy{Operator: operator, Tenant: tenant}[v.Side]
		one := Explained{
			Side: v.Side, File: p.File, Digest: hex.EncodeToString(v.Policy), Allowed: v.Denied == "", Line: int(v.Line), Rule: v.Rule, Reason: v.Denied,
		}
		if one.Allowed {
			one.Text = p.Network[v.Rule-1].String()
		}
		doc.Verdicts = append(doc.Verdicts, one)
	}
	doc.Verdicts[len(doc.Verdicts)-1].Line = d.Line
	if why := egress.RefusedAddress(r.Host, true); why != "" { // whatever the policies say
		doc.Address = fmt.Sprintf("%s is an address that no policy can allow (%s)", r.Host, why)
		return doc, nil
	}
	if bad, ok := errors.AsType[*egress.Error](refused); ok && d.Allowed() {
		if doc.Refused = bad.Text; !d.Grant.Private && egress.RefusedAddress(r.Host, false) != "" {
			doc.Address, doc.Refused = r.Host+" is a private address, and not every rule says private: true", ""
		}
		return doc, nil
	}
	if !doc.Allowed && len(r.Access.Secrets) == 0 && NamesTool(operator, tenant, r.Tool) {
		rule := RuleFor(r)
		doc.Suggest = rule.YAML()
		if len(rule.Paths) == 0 {
			doc.Caution = "It allows all paths: this one could be read in two ways, and is matched by no pattern."
		}
	}
	return doc, nil
}
