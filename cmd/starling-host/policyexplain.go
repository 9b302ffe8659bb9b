package main

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/egress"
)

const explainHelp = `Print whether a tool may make a request, and the rule that decides.

If no rule allows the request, the command names the closest rule, or the line of the
file that lacks one, and prints a rule that would allow it. --tenant adds a tenant's
policy to the first, the operator's, and both must allow the request.

The exit code is 0 if the request is allowed, and 4 if it is not.`

func (a *app) policyExplainCommand() *cobra.Command {
	method, tenant, output := "", "", ""
	cmd := &cobra.Command{
		Use:     "explain FILE TOOL URL",
		Short:   "find the rule that decides about a request",
		Long:    explainHelp,
		Example: "  starling-host policy explain policy.yaml charge https://api.stripe.com/v1/charges --method POST",
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			var second *policy.Policy
			if tenant != "" {
				if second, err = loadPolicy(tenant); err != nil {
					return err
				}
			}
			access, err := (&egress.Request{Method: method, URL: args[2]}).Access()
			if bad, ok := errors.AsType[*egress.Error](err); ok { // the URL, or a placeholder in it, is none
				return usagef("", "%s", bad.Text)
			}
			return a.policyExplain(p, second, policy.Request{Access: access, Tool: args[1]}, output)
		},
	}
	cmd.Flags().StringVar(&method, "method", "GET", "`METHOD` of the request")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`FILE` of a tenant's policy, which must allow the request as well")
	outputFlag(cmd, &output)
	return cmd
}

// explanationDocument is what "policy explain -o json" prints.
type explanationDocument struct {
	Tool     string            `json:"tool"`
	Request  string            `json:"request"`
	Allowed  bool              `json:"allowed"`
	Verdicts []verdictOnPolicy `json:"verdicts"`
	Address  string            `json:"address,omitempty"`
	Suggest  string            `json:"suggestion,omitempty"`
	Caution  string            `json:"caution,omitempty"` // about the suggestion
}

// verdictOnPolicy is what one policy says.
type verdictOnPolicy struct {
	Side    string `json:"side"`
	File    string `json:"file"`
	Digest  string `json:"digest"`
	Allowed bool   `json:"allowed"`
	Line    int    `json:"line"`
	Rule    uint32 `json:"rule,omitempty"`
	Text    string `json:"text,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// newExplanation decides about a request and says why.
func newExplanation(operator, tenant *policy.Policy, r policy.Request) explanationDocument {
	d := policy.Decide(operator, tenant, r, nil)
	doc := explanationDocument{Tool: r.Tool, Request: r.Method + " " + r.Access.Origin() + r.Path, Allowed: d.Allowed()}
	for _, v := range d.Verdicts {
		p := map[string]*policy.Policy{policy.Operator: operator, policy.Tenant: tenant}[v.Side]
		one := verdictOnPolicy{
			Side: v.Side, File: p.File, Digest: hex.EncodeToString(v.Policy), Allowed: v.Denied == "", Line: int(v.Line), Rule: v.Rule, Reason: v.Denied,
		}
		if one.Allowed {
			one.Text = p.Network[v.Rule-1].String()
		}
		doc.Verdicts = append(doc.Verdicts, one)
	}
	doc.Verdicts[len(doc.Verdicts)-1].Line = d.Line
	if doc.Address = refusedAddress(r.Host, d); doc.Address != "" {
		doc.Allowed = false
		return doc
	}
	if !doc.Allowed && len(r.Access.Secrets) == 0 && policy.NamesTool(operator, tenant, r.Tool) {
		rule := policy.RuleFor(r)
		doc.Suggest = rule.YAML()
		if len(rule.Paths) == 0 {
			doc.Caution = "It allows all paths: this one could be read in two ways, and is matched by no pattern."
		}
	}
	return doc
}

// refusedAddress says why a host that is an address is not reached, whatever the
// policies say about it, or because not all of them open it. It is empty otherwise.
func refusedAddress(host string, d policy.Decision) string {
	why := egress.RefusedAddress(host, true)
	switch {
	case why != "":
		return fmt.Sprintf("%s is an address that no policy can allow (%s)", host, why)
	case d.Allowed() && egress.RefusedAddress(host, d.Grant.Private) != "":
		return host + " is a private address, and not every rule says private: true"
	}
	return ""
}

func (a *app) policyExplain(operator, tenant *policy.Policy, r policy.Request, output string) error {
	doc := newExplanation(operator, tenant, r)
	code := exitOK
	if !doc.Allowed {
		code = exitRefused
	}
	if output == outputJSON {
		return cmp.Or(a.writeValue(doc), silent(code))
	}
	a.stdout.printf("%s by %s\n", doc.Request, doc.Tool)
	for _, v := range doc.Verdicts {
		if v.Allowed {
			a.stdout.printf("allowed  %s:%d  rule %d: %s\n", v.File, v.Line, v.Rule, v.Text)
			continue
		}
		a.stdout.printf("denied   %s:%d  %s\n", v.File, v.Line, v.Reason)
	}
	if doc.Address != "" {
		a.stdout.printf("denied   %s\n", doc.Address)
	}
	if doc.Suggest != "" {
		a.stdout.printf("\nThis rule in permissions.network.allow would allow it:\n\n      - %s\n", doc.Suggest)
	}
	if doc.Caution != "" {
		a.stdout.printf("\n%s\n", doc.Caution)
	}
	return silent(code)
}
