package policy

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/runtime/egress"
)

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
