package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/daemon"
	"github.com/starling-host/starling/host/narrate"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
)

const usageHelp = `Show what tenants have used, by day (UTC), beside what they may use. A run counts on
the day on which it ended, with all that it used. Days are kept for 400 days.

FUEL is in units of spec/determinism.md. EFFECTS are readings of the clock, random draws
and HTTP exchanges, and EGRESS is what their requests sent. RECORDED is the size of the
runs' events. With an ID, what the tenant's runs take now is counted as well.

The database is opened for reading, also while hosts serve.`

func (a *app) tenantUsageCommand() *cobra.Command {
	var f hostFlags
	filter := tenant.UsageFilter{}
	cmd := &cobra.Command{
		Use:     "usage [ID]",
		Short:   "show what tenants have used, by day",
		Long:    usageHelp,
		Example: "  starling-host tenant usage\n  starling-host tenant usage acme --days 7 -o json",
		Args:    arguments(0, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if filter.Days < 1 || filter.Days > queue.UsageDays || filter.Limit < 1 {
				return usagef("", "--days must be 1 to %d and --limit at least 1", queue.UsageDays)
			}
			if len(args) == 1 {
				filter.Tenant = args[0]
			}
			return f.withTenants(cmd.Context(), toRead, func(t tenants) error { return a.tenantUsage(cmd.Context(), t, filter, f.output) })
		},
	}
	cmd.Flags().IntVar(&filter.Days, "days", tenant.DefaultUsageDays, "show the last `N` days, with today")
	cmd.Flags().IntVar(&filter.Limit, "limit", tenant.DefaultUsageTenants, "show at most `N` tenants")
	cmd.Flags().StringVar(&filter.After, "after", "", "show the tenants behind `ID`, where the page before ended")
	f.addDatabase(cmd)
	outputFlag(cmd, &f.output)
	return cmd
}

func (a *app) tenantUsage(ctx context.Context, t tenants, f tenant.UsageFilter, output string) error {
	q, err := queue.Open(ctx, t.log, queue.Config{Existing: true})
	if errors.Is(err, queue.ErrNoTables) {
		a.stderr.printf("no host of this version has used the database: no days are counted\n")
	} else if err != nil {
		return err
	}
	doc, err := daemon.UsageOf(ctx, t.log, t.Store, q, tenant.DefaultLimits(), f)
	if err != nil {
		return err
	}
	if output == outputJSON {
		return a.writeValue(doc)
	}
	const columns = "%-32s  %-10s  %10s  %16s  %10s  %11s  %11s\n"
	a.stdout.printf(columns, "TENANT", "DAY", "RUNS", "FUEL", "EFFECTS", "EGRESS", "RECORDED")
	of := func(used, bound int64) string {
		if bound < 0 {
			return formatSize(uint64(used)) + ", no bound"
		}
		return formatSize(uint64(used)) + " of " + formatSize(uint64(bound))
	}
	for _, one := range doc.Items {
		for _, d := range one.Days {
			a.stdout.printf(columns, one.Tenant, d.Day, narrate.Grouped(uint64(d.Runs)), narrate.Grouped(uint64(d.Fuel)), narrate.Grouped(uint64(d.Effects)), formatSize(uint64(d.EgressBytes)), formatSize(uint64(d.RecordedBytes)))
		}
		a.stdout.printf("%-32s  has %s, %s", one.Tenant, plural(int(one.Modules), "module"), of(one.ModuleBytes, one.Limits.Modules))
		if r := one.Recorded; r != nil {
			a.stdout.printf("; recorded since midnight %s, in all %s", of(r.Today, one.Limits.RecordedPerDay), of(r.Bytes, one.Limits.Recorded))
		}
		a.stdout.printf("\n")
	}
	if doc.Next != "" {
		a.stderr.printf("there are more; the next: --after %s\n", doc.Next)
	}
	return nil
}
