package main

import (
	"cmp"
	"context"
	"errors"
	"net/textproto"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/serve/tenant"
)

func (a *app) policyCommand() *cobra.Command {
	return parent("policy", "look at what tools may do",
		a.policyCheckCommand(), a.policyExplainCommand(), a.policySuggestCommand(), a.policyTestCommand())
}

// loadPolicy reads a policy for a command.
func loadPolicy(path string) (*policy.Policy, error) {
	p, err := policy.Load(path)
	if err != nil {
		return nil, explainFile(err)
	}
	return p, nil
}

// acceptedDocument is the output of "policy check -o json".
type acceptedDocument struct {
	File    string `json:"file"`
	Digest  string `json:"digest"`
	Network int    `json:"network_rules"`
	Tools   *int   `json:"tool_rules,omitempty"`
	Secrets int    `json:"secret_rules"`
}

func (a *app) policyCheckCommand() *cobra.Command {
	return subcommand("check FILE", "validate a policy", func(_ *cobra.Command, args []string) error {
		p, err := loadPolicy(args[0])
		if err != nil {
			return err
		}
		doc := acceptedDocument{File: p.File, Digest: p.Digest().String(), Network: len(p.Network), Secrets: len(p.Secrets)}
		tools := "all tools, with any arguments"
		if p.Tools != nil {
			n := len(p.Tools)
			doc.Tools, tools = &n, display.Plural(n, "rule")+" for tools"
		}
		return a.emit(doc, func() {
			a.stdout.Printf("accepted  %s\ndigest    %s\nallows    %s for requests, %s, %s for secrets\n",
				doc.File, doc.Digest, display.Plural(doc.Network, "rule"), tools, display.Plural(doc.Secrets, "rule"))
		})
	}, a.outputFlag)
}

func (a *app) policySuggestCommand() *cobra.Command {
	return readCommand("suggest [DB] RUN", "print the smallest policy that a run needs", func(ctx context.Context, log database, args []string) error {
		events, err := readRun(ctx, log, args[1])
		if err != nil {
			return err
		}
		text, err := policy.Suggest(events)
		if err != nil {
			return err
		}
		if !a.asJSON {
			_, err = a.stdout.Lines().Write(text)
			return err
		}
		doc, err := config.Parse("the suggestion", text)
		if err != nil {
			return err
		}
		return a.writeValue(doc.Value())
	}, a.outputFlag)
}

func (a *app) policyTestCommand() *cobra.Command {
	var p *policy.Policy
	var since time.Time
	var against, namespace string
	cmd := readCommand("test FILE [DB]", "list what a policy would have refused in recorded runs", func(ctx context.Context, log database, _ []string) error {
		ids, err := runsSince(ctx, log, since, namespace)
		if err != nil {
			return err
		}
		return a.policyTest(ctx, p, log, ids)
	}, a.outputFlag)
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if p, err = loadPolicy(args[0]); err == nil {
			since, err = parseSince(against, time.Now())
		}
		return err
	}
	cmd.Flags().StringVar(&against, "against", "", "look only at runs that began after `SINCE`")
	cmd.Flags().StringVar(&namespace, "namespace", "", "read only the runs of one tenant: ids that begin with `NAME` and a slash")
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
	if aged(&ago).set(s) != nil {
		return time.Time{}, usagef("write 2006-01-02, 2006-01-02T15:04:05Z, 720h or 30d", "--against %q: neither a date nor a duration", s)
	}
	return now.Add(-ago), nil
}

// policyTest prints the actions of runs that a policy would have refused.
func (a *app) policyTest(ctx context.Context, p *policy.Policy, log database, ids []string) error {
	var runs, met, refused, gone int
	for _, runID := range ids {
		events, err := log.Read(ctx, runID)
		if err != nil {
			return unreadable(ctx, err)
		}
		refusals, err := policy.Test(p, nil, events)
		keyed, ok := log.(*tenant.Decrypting)
		erased := ok && err != nil && keyed.Erased(ctx, runID)
		switch {
		case errors.Is(err, event.ErrEncrypted) && erased:
			gone++ // it is unreadable for everyone, and must not stop the test of other runs
			continue
		case errors.Is(err, event.ErrEncrypted): // of usage: policies would seem to refuse what is refused elsewhere
			return usagef("the master key opens it in the database that has its tenant: --key-file FILE", "policy test: run %s is encrypted", runID)
		case err != nil:
			return err
		}
		runs++
		refused += len(refusals)
		if len(refusals) > 0 {
			met++
		}
		for _, r := range refusals {
			doc := r.Document(runID)
			err := a.emit(doc, func() {
				what := doc.Tool
				if doc.Request != "" {
					what += ": " + doc.Request
				}
				a.stdout.Printf("%s seq %d  %s  %s:%d: %s\n", doc.RunID, doc.Seq, what, p.File, doc.Line, doc.Reason)
			})
			if err != nil {
				return err
			}
		}
	}
	if !a.asJSON {
		a.stdout.Printf("%s in %d of %s\n", display.Plural(refused, "refusal"), met, display.Plural(runs, "run"))
	}
	if gone > 0 {
		a.stderr.Printf("not tested: %s of tenants that were erased\n", display.Plural(gone, "run"))
	}
	return unless(refused == 0, exitRefused)
}

// runsSince returns the ids of the runs of a namespace that began after a time, oldest first.
func runsSince(ctx context.Context, log eventlog.EventLog, since time.Time, namespace string) ([]string, error) {
	runs, err := log.ListRuns(ctx)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	var ids []string
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].StartedAt.After(since) && eventlog.InNamespace(runs[i].RunID, namespace) {
			ids = append(ids, runs[i].RunID)
		}
	}
	return ids, nil
}

func (a *app) policyExplainCommand() *cobra.Command {
	method, tenant, body := "", "", ""
	var headers []string
	cmd := subcommand("explain FILE TOOL URL", "find the rule that decides about a request", func(cmd *cobra.Command, args []string) error {
		p, err := loadPolicy(args[0])
		if err != nil {
			return err
		}
		second, err := openPolicy(tenant)
		if err != nil {
			return err
		}
		request := &egress.Request{Method: method, URL: args[2], Header: map[string][]string{}, Body: []byte(body)}
		for _, header := range headers {
			name, value, ok := strings.Cut(header, ":")
			if !ok {
				return usagef("write it as in: --header 'Authorization: Bearer {{secret:API_KEY}}'", "policy explain: --header %q is not NAME: VALUE", header)
			}
			name = textproto.CanonicalMIMEHeaderKey(name)
			request.Header[name] = append(request.Header[name], strings.TrimSpace(value))
		}
		doc, err := policy.Explain(cmd.Context(), p, second, starling.EnvSecrets{}, request, args[1])
		if bad, ok := errors.AsType[*egress.Error](err); ok { // the URL, or a placeholder in it, is invalid
			return usagef("", "%s", bad.Text)
		}
		for _, name := range doc.Missing {
			doc.Caution = "The value of " + name + " was not checked: STARLING_SECRET_" + name + " is not set here."
		}
		return cmp.Or(a.emit(doc, func() {
			a.stdout.Printf("%s by %s\n", doc.Request, doc.Tool)
			for _, v := range doc.Verdicts {
				if v.Allowed {
					a.stdout.Printf("allowed  %s:%d  rule %d: %s\n", v.File, v.Line, v.Rule, v.Text)
					continue
				}
				a.stdout.Printf("denied   %s:%d  %s\n", v.File, v.Line, v.Reason)
			}
			if doc.Address != "" {
				a.stdout.Printf("denied   %s\n", doc.Address)
			}
			if doc.Refused != "" {
				a.stdout.Printf("denied   %s\n", doc.Refused)
			}
			if doc.Suggest != "" {
				a.stdout.Printf("\nThis rule in permissions.network.allow would allow it:\n\n      - %s\n", doc.Suggest)
			}
			if doc.Caution != "" {
				a.stdout.Printf("\n%s\n", doc.Caution)
			}
		}), unless(doc.Allowed, exitRefused))
	}, a.outputFlag)
	cmd.Flags().StringVar(&method, "method", "GET", "`METHOD` of the request")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "`NAME: VALUE` of a header of the request; may be repeated")
	cmd.Flags().StringVar(&body, "body", "", "`TEXT` of the request's body")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`FILE` of a tenant's policy, which must allow the request as well")
	return cmd
}
