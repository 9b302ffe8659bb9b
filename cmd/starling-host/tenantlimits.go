package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/tenant"
)

// limitFlags are the limits of a tenant on a command line. A limit without its flag does not
// change.
type limitFlags struct {
	tenant.Limits
	weight int
}

// limit is one of a tenant's limits, either a count or a size; the other field is nil.
type limit struct {
	name, usage string
	count       func(*tenant.Limits) *int
	size        func(*tenant.Limits) *int64
}

// limits are in the order in which they are printed.
var limits = []limit{
	{"running", "calls and runs at work at once", func(l *tenant.Limits) *int { return &l.Running }, nil},
	{"waiting", "runs in the queue", func(l *tenant.Limits) *int { return &l.Waiting }, nil},
	{"compiling", "modules waiting for the compiler or in it", func(l *tenant.Limits) *int { return &l.Compiling }, nil},
	{"connections", "connections of its tools at once", func(l *tenant.Limits) *int { return &l.Connections }, nil},
	{"requests-per-second", "requests to the API", func(l *tenant.Limits) *int { return &l.RequestsPerSecond }, nil},
	{"recorded-per-day", "bytes of events since midnight UTC", nil, func(l *tenant.Limits) *int64 { return &l.RecordedPerDay }},
	{"recorded", "bytes of events in all its runs", nil, func(l *tenant.Limits) *int64 { return &l.Recorded }},
	{"module-bytes", "bytes of its modules, and of removed ones that its runs name", nil, func(l *tenant.Limits) *int64 { return &l.Modules }},
	{"uploads-per-hour", "modules that it uploads", func(l *tenant.Limits) *int { return &l.UploadsPerHour }, nil},
}

const weightName = "weight"

func (l *limitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, one := range limits {
		if one.size != nil {
			flags.Var(limitFlag(one.size(&l.Limits), "SIZE", parseSize), one.name, one.usage)
		} else {
			flags.Var(limitFlag(one.count(&l.Limits), "N", parseLimit), one.name, one.usage)
		}
	}
	l.weight = 1
	flags.Var(weightFlag(&l.weight), weightName, fmt.Sprintf("share of the host beside others, 1 to %d", tenant.MaxWeight))
}

// apply changes t by the flags that were given, and reports whether there are any.
func (l *limitFlags) apply(cmd *cobra.Command, t *tenant.Tenant) (any bool) {
	given := cmd.Flags().Changed
	for _, one := range limits {
		switch {
		case !given(one.name):
			continue
		case one.size != nil:
			*one.size(&t.Limits) = *one.size(&l.Limits)
		default:
			*one.count(&t.Limits) = *one.count(&l.Limits)
		}
		any = true
	}
	if given(weightName) {
		t.Weight, any = l.weight, true
	}
	return any
}

// limitFlag is a number, "default" or "none".
func limitFlag[T int | int64](value *T, kind string, parse func(string) (T, error)) *flagValue {
	return &flagValue{kind: kind + "|default|none", set: func(s string) (err error) {
		switch s {
		case "default":
			*value = 0
		case "none":
			*value = -1
		default:
			*value, err = parse(s)
		}
		return err
	}}
}

func parseSize(s string) (int64, error) {
	n, err := display.ParseCount(s, sizeUnits)
	return int64(n), err
}

func parseLimit(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("must be a positive whole number, default or none")
	}
	return n, nil
}

// weightFlag is the value of a weight flag; zero means no weight.
func weightFlag(value *int) *flagValue {
	return &flagValue{kind: "N", standard: strconv.Itoa(*value), set: func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > tenant.MaxWeight {
			return fmt.Errorf("must be 1 to %d", tenant.MaxWeight)
		}
		*value = n
		return nil
	}}
}

const limitsHelp = `Show or change the limits of a tenant. A flag takes a number, "default" for the host's
default, or "none" for no limit; other limits stay. A running host applies the change
at the next request, and --running, --waiting and --weight within seconds.
--compiling, --connections, --requests-per-second and --uploads-per-hour apply to each
process.

A limit marked as default may be replaced by the limits in host.yaml, which this
command does not read.`

func (a *app) limitsCommand() *cobra.Command {
	var f hostFlags
	var l limitFlags
	cmd := &cobra.Command{
		Use:     "limits ID",
		Short:   "show or change the limits of a tenant",
		Long:    limitsHelp,
		Example: "  starling-host tenant limits acme\n  starling-host tenant limits acme --running 8 --recorded-per-day 100MiB --weight 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			do := toRead
			if l.apply(cmd, new(tenant.Tenant)) {
				do = toChange
			}
			return f.withTenants(cmd.Context(), do, func(t tenants) (err error) {
				var now tenant.Tenant
				if do == toRead {
					now, err = t.Tenant(cmd.Context(), args[0])
				} else {
					err = t.Change(cmd.Context(), args[0], func(changed *tenant.Tenant) {
						l.apply(cmd, changed)
						now = *changed
					})
				}
				if err != nil {
					return err
				}
				return a.printLimits(now, f.output)
			})
		},
	}
	f.addDatabase(cmd)
	outputFlag(cmd, &f.output)
	l.add(cmd)
	return cmd
}

// printLimits prints the limits as they are with the defaults, -1 for no bound.
func (a *app) printLimits(t tenant.Tenant, output string) error {
	now := t.Limits.Or(tenant.DefaultLimits())
	if output == outputJSON {
		return a.writeValue(now)
	}
	for _, one := range limits {
		var set, value int64
		var text string
		if one.size != nil {
			set, value = *one.size(&t.Limits), *one.size(&now)
			text = formatSize(uint64(value))
		} else {
			set, value = int64(*one.count(&t.Limits)), int64(*one.count(&now))
			text = strconv.FormatInt(value, 10)
		}
		if value < 0 {
			text = "none"
		}
		if set == 0 {
			text += " (default)"
		}
		a.stdout.printf("%-20s  %s\n", one.name, text)
	}
	a.stdout.printf("%-20s  %d\n", weightName, t.Weight)
	return nil
}
