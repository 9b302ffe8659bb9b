package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/egress"
)

const policyHelp = `Commands that look at policies: files that say which requests the tools of a run may
make, which of them may be called with what, and where secrets may be sent.

spec/policy.md describes the format, and examples/policy/policy.yaml is one.`

const explainHelp = `Say whether a tool may make a request, and which rule says so.

If none allows it, the rule that comes closest is named, and one that would allow
it is printed. With --tenant a second policy is asked after the first, the
operator's, and both must allow it.

The exit code is 0 if the request is allowed, and 4 if it is not.`

const suggestHelp = `Print the smallest policy under which a recorded run could have done what it did: the
tools that it called, the requests that it made, as often as it made them, and what
its calls used at most. What was denied when it was recorded is not in it.

It is a beginning. Paths that have ids in them want a *, and counts some room.`

const policyTestHelp = `Say what of the recorded runs a policy would have refused: calls, requests, and calls
that used more than its limits.

Each line has the run, the number of the event and the reason. SINCE is a date such
as 2006-01-02, a time such as 2006-01-02T15:04:05Z, or an age such as 720h or 30d, for
the runs that began at most so long ago.

The exit code is 0 if nothing would have been refused, and 4 otherwise.`

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy",
		Short:   "look at what tools may do",
		Long:    policyHelp,
		GroupID: groupRun,
		Args:    knownSubcommand,
		RunE:    showHelp,

		SuggestionsMinimumDistance: typos,
	}
	cmd.AddCommand(a.policyCheckCommand(), a.policyExplainCommand(), a.policySuggestCommand(), a.policyTestCommand())
	return cmd
}

// loadPolicy reads a policy for a command.
func loadPolicy(path string) (*policy.Policy, error) {
	p, err := policy.Load(path)
	if err != nil {
		return nil, explainFile(err)
	}
	return p, nil
}

func (a *app) policyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "say whether a policy can be read",
		Long:    "Read a policy, and print its digest, by which logs name it, and how much it has of what.",
		Example: "  starling-host policy check policy.yaml",
		Args:    arguments(1, "FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			tools := "all tools, whatever their arguments"
			if p.Tools != nil {
				tools = plural(len(p.Tools), "rule") + " for tools"
			}
			fmt.Fprintf(a.stdout, "accepted  %s\ndigest    %s\nallows    %s for requests, %s, %s for secrets\n",
				printable(args[0]), p.Digest(), plural(len(p.Network), "rule"), tools, plural(len(p.Secrets), "rule"))
			return nil
		},
	}
}

func (a *app) policyExplainCommand() *cobra.Command {
	method, tenant := "", ""
	cmd := &cobra.Command{
		Use:     "explain FILE TOOL URL",
		Short:   "say which rule decides about a request",
		Long:    explainHelp,
		Example: "  starling-host policy explain policy.yaml charge https://api.stripe.com/v1/charges --method POST",
		Args:    arguments(3, "FILE", "TOOL", "URL"),
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
			if err != nil {
				return explainAccess(err)
			}
			return a.policyExplain(p, second, policy.Request{Access: access, Tool: args[1]})
		},
	}
	cmd.Flags().StringVar(&method, "method", "GET", "`METHOD` of the request")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`FILE` of a tenant's policy, which must allow the request as well")
	return cmd
}

// explainAccess words why a URL or a placeholder in it is none.
func explainAccess(err error) error {
	if bad, ok := errors.AsType[*egress.Error](err); ok {
		return usagef("", "%s", bad.Text)
	}
	return err
}

func (a *app) policyExplain(p, tenant *policy.Policy, r policy.Request) error {
	d := policy.Decide(p, tenant, r, nil)
	fmt.Fprintf(a.stdout, "%s %s%s by %s\n", printable(r.Method), printable(r.Access.Origin()), printable(r.Path), printable(r.Tool))
	for _, v := range d.Verdicts {
		file := p.File
		if v.Side == policy.Tenant {
			file = tenant.File
		}
		if v.Denied == "" {
			rule := map[string]*policy.Policy{policy.Operator: p, policy.Tenant: tenant}[v.Side].Network[v.Rule-1]
			fmt.Fprintf(a.stdout, "allowed  %s:%d  rule %d: %s\n", printable(file), v.Line, v.Rule, printable(rule.String()))
			continue
		}
		where := file
		if v.Line > 0 {
			where = fmt.Sprintf("%s:%d", file, v.Line)
		}
		fmt.Fprintf(a.stdout, "denied   %s  %s\n", printable(where), printable(v.Denied))
	}
	why := egress.RefusedAddress(r.Host, true)
	switch {
	case why != "":
		fmt.Fprintf(a.stdout, "denied   %s is an address that no policy opens (%s)\n", printable(r.Host), why)
		return silent(exitRefused)
	case d.Allowed() && egress.RefusedAddress(r.Host, d.Grant.Private) != "":
		fmt.Fprintf(a.stdout, "denied   %s is a private address, and not every rule says private: true\n", printable(r.Host))
		return silent(exitRefused)
	case d.Allowed():
		return nil
	}
	if len(r.Access.Secrets) == 0 && !strings.HasPrefix(d.Verdicts[len(d.Verdicts)-1].Denied, "it does not name the tool") {
		fmt.Fprintf(a.stdout, "\nThis rule in permissions.network.allow would allow it:\n\n      - %s\n", printable(policy.RuleFor(r).YAML()))
	}
	return silent(exitRefused)
}

func (a *app) policySuggestCommand() *cobra.Command {
	var f readFlags
	cmd := &cobra.Command{
		Use:               "suggest DB RUN",
		Short:             "print the smallest policy that a run needs",
		Long:              suggestHelp,
		Example:           "  starling-host policy suggest starling.db @last >suggested.yaml",
		Args:              arguments(2, "DB", "RUN"),
		ValidArgsFunction: completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			events, err := f.readRun(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			text, err := policy.Suggest(events)
			if err != nil {
				return err
			}
			for _, line := range printableLines(string(text)) {
				fmt.Fprintln(a.stdout, line)
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

type policyTestFlags struct {
	since  string
	output string

	read readFlags
}

func (a *app) policyTestCommand() *cobra.Command {
	var f policyTestFlags
	cmd := &cobra.Command{
		Use:     "test FILE DB",
		Short:   "say what recorded runs a policy would have refused",
		Long:    policyTestHelp,
		Example: "  starling-host policy test policy.yaml starling.db --against 720h",
		Args:    arguments(2, "FILE", "DB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			since, err := parseSince(f.since, time.Now())
			if err != nil {
				return err
			}
			return a.policyTest(cmd.Context(), p, args[1], since, f)
		},
	}
	cmd.Flags().StringVar(&f.since, "against", "", "look only at runs that began after `SINCE`")
	f.read.add(cmd)
	outputFlag(cmd, &f.output)
	return cmd
}

// parseSince reads a date, a time, or how long ago something was.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	var ago time.Duration
	if (ageFlag{&ago}).Set(s) != nil {
		return time.Time{}, usagef("write 2006-01-02, 2006-01-02T15:04:05Z, 720h or 30d", "--against %q: neither a date nor a duration", s)
	}
	return now.Add(-ago), nil
}

// refusalDocument is what "policy test -o json" prints for each refusal.
type refusalDocument struct {
	RunID   string `json:"run_id"`
	Seq     uint64 `json:"seq"`
	Tool    string `json:"tool"`
	Request string `json:"request,omitempty"`
	Line    uint32 `json:"line,omitempty"`
	Reason  string `json:"reason"`
}

func newRefusal(runID string, r policy.Refusal) refusalDocument {
	last := r.Decision.Verdicts[len(r.Decision.Verdicts)-1]
	doc := refusalDocument{RunID: runID, Seq: r.Use.Seq, Tool: r.Use.Tool, Line: last.Line, Reason: last.Denied}
	if q := r.Use.Request; q != nil {
		doc.Request = q.Method + " " + q.Access.Origin() + q.Path
	}
	return doc
}

func (a *app) policyTest(ctx context.Context, p *policy.Policy, path string, since time.Time, f policyTestFlags) error {
	log, err := f.read.open(ctx, path)
	if err != nil {
		return err
	}
	defer log.Close()
	ids, err := runsSince(ctx, log, since)
	if err != nil {
		return err
	}
	total := 0
	refusals := func(ctx context.Context, runID string) ([]policy.Refusal, error) {
		events, err := log.Read(ctx, runID)
		if err != nil {
			return nil, unreadable(ctx, err)
		}
		return policy.Test(p, nil, events)
	}
	for _, runID := range ids {
		refused, err := refusals(ctx, runID)
		if err != nil {
			return err
		}
		total += len(refused)
		for _, r := range refused {
			if err := a.printRefusal(p.File, newRefusal(runID, r), f); err != nil {
				return err
			}
		}
	}
	if f.output == outputText {
		fmt.Fprintf(a.stdout, "%s: %d would have been refused\n", plural(len(ids), "run"), total)
	}
	if total > 0 {
		return silent(exitRefused)
	}
	return nil
}

func (a *app) printRefusal(file string, doc refusalDocument, f policyTestFlags) error {
	if f.output == outputJSON {
		return a.writeValue(doc)
	}
	what := doc.Tool
	if doc.Request != "" {
		what += ": " + doc.Request
	}
	if doc.Line > 0 {
		file = fmt.Sprintf("%s:%d", file, doc.Line)
	}
	_, err := fmt.Fprintf(a.stdout, "%s seq %d  %s  %s: %s\n", printable(doc.RunID), doc.Seq, printable(what), printable(file), printable(doc.Reason))
	return err
}

// runsSince returns the ids of the runs that began after a time, oldest first.
func runsSince(ctx context.Context, log eventlog.RunLister, since time.Time) ([]string, error) {
	runs, err := log.ListRuns(ctx)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	var ids []string
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].StartedAt.After(since) {
			ids = append(ids, runs[i].RunID)
		}
	}
	return ids, nil
}
