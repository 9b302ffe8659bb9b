package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/tenant"
)

// limitFlags are the limits of a tenant on a command line. Those that are not
// given leave what there is.
type limitFlags struct {
	tenant.Limits
	weight int
}

// limitNames are the flags, in the order of the limits.
var limitNames = []string{"running", "waiting", "compiling", "connections", "requests-per-second", "recorded-per-day", "recorded", "weight"}

func (l *limitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(limitFlag[int]{&l.Running, false}, "running", "calls and runs at work at once")
	flags.Var(limitFlag[int]{&l.Waiting, false}, "waiting", "runs in the queue")
	flags.Var(limitFlag[int]{&l.Compiling, false}, "compiling", "modules waiting for the compiler or in it")
	flags.Var(limitFlag[int]{&l.Connections, false}, "connections", "connections of its tools at once")
	flags.Var(limitFlag[int]{&l.RequestsPerSecond, false}, "requests-per-second", "requests to the API")
	flags.Var(limitFlag[int64]{&l.RecordedPerDay, true}, "recorded-per-day", "bytes of events since midnight UTC")
	flags.Var(limitFlag[int64]{&l.Recorded, true}, "recorded", "bytes of events in all its runs")
	l.weight = 1
	flags.Var(weightFlag{&l.weight}, "weight", fmt.Sprintf("share of the host beside others, 1 to %d", tenant.MaxWeight))
}

// apply changes t by the flags that were given.
func (l *limitFlags) apply(cmd *cobra.Command, t *tenant.Tenant) {
	given := cmd.Flags().Changed
	take(given("running"), &t.Limits.Running, l.Running)
	take(given("waiting"), &t.Limits.Waiting, l.Waiting)
	take(given("compiling"), &t.Limits.Compiling, l.Compiling)
	take(given("connections"), &t.Limits.Connections, l.Connections)
	take(given("requests-per-second"), &t.Limits.RequestsPerSecond, l.RequestsPerSecond)
	take(given("recorded-per-day"), &t.Limits.RecordedPerDay, l.RecordedPerDay)
	take(given("recorded"), &t.Limits.Recorded, l.Recorded)
	take(given("weight"), &t.Weight, l.weight)
}

func take[T any](given bool, to *T, value T) {
	if given {
		*to = value
	}
}

// weightFlag is a weight, of which zero is none.
type weightFlag struct{ value *int }

func (f weightFlag) String() string {
	if f.value == nil {
		return ""
	}
	return strconv.Itoa(*f.value)
}

func (f weightFlag) Type() string { return "N" }

func (f weightFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > tenant.MaxWeight {
		return fmt.Errorf("must be 1 to %d", tenant.MaxWeight)
	}
	*f.value = n
	return nil
}

// limitFlag is a number, "default" or "none". A size may have a suffix.
type limitFlag[T int | int64] struct {
	value *T
	size  bool
}

func (f limitFlag[T]) String() string { return "" }

func (f limitFlag[T]) Type() string {
	if f.size {
		return "SIZE|default|none"
	}
	return "N|default|none"
}

func (f limitFlag[T]) Set(s string) error {
	switch s {
	case "default":
		*f.value = 0
		return nil
	case "none":
		*f.value = -1
		return nil
	}
	if f.size {
		n, err := parseCount(s, sizeUnits)
		*f.value = T(n)
		return err
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("must be a positive whole number, default or none")
	}
	*f.value = T(n)
	return nil
}

const limitsHelp = `Show what a tenant may use, or change it. A flag takes a number, "default" for the
host's default, or "none" for no bound; limits that are not named stay. A running
host sees the change at the next request, and of --running, --waiting and --weight
within seconds. Of --compiling, --connections and --requests-per-second each process
of several on one database allows as many.

What is marked as default is that of a host whose host.yaml has no limits. The command
does not see host.yaml, and a limit there holds instead.`

func (a *app) limitsCommand() *cobra.Command {
	var f hostFlags
	var l limitFlags
	cmd := &cobra.Command{
		Use:     "limits ID",
		Short:   "show or change what a tenant may use",
		Long:    limitsHelp,
		Example: "  starling-host tenant limits acme\n  starling-host tenant limits acme --running 8 --recorded-per-day 100MiB --weight 2",
		Args:    arguments(1, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			do := toRead
			if slices.ContainsFunc(limitNames, cmd.Flags().Changed) {
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

// limitsDocument is what "tenant limits -o json" prints: the limits as they are
// with the defaults, -1 for no bound.
type limitsDocument struct {
	Running           int   `json:"running"`
	Waiting           int   `json:"waiting"`
	Compiling         int   `json:"compiling"`
	Connections       int   `json:"connections"`
	RequestsPerSecond int   `json:"requests_per_second"`
	RecordedPerDay    int64 `json:"recorded_bytes_per_day"`
	Recorded          int64 `json:"recorded_bytes"`
}

func (a *app) printLimits(t tenant.Tenant, output string) error {
	doc := limitsDocument(t.Limits.Or(tenant.DefaultLimits()))
	if output == outputJSON {
		return a.writeValue(doc)
	}
	set := t.Limits
	for i, v := range []struct{ set, value int64 }{
		{int64(set.Running), int64(doc.Running)}, {int64(set.Waiting), int64(doc.Waiting)},
		{int64(set.Compiling), int64(doc.Compiling)}, {int64(set.Connections), int64(doc.Connections)},
		{int64(set.RequestsPerSecond), int64(doc.RequestsPerSecond)},
		{set.RecordedPerDay, doc.RecordedPerDay}, {set.Recorded, doc.Recorded}, {int64(t.Weight), int64(t.Weight)},
	} {
		a.stdout.printf("%-20s  %s\n", limitNames[i], limitText(limitNames[i], v.set, v.value))
	}
	return nil
}

func limitText(name string, set, value int64) string {
	text := strconv.FormatInt(value, 10)
	switch {
	case value < 0:
		text = "none"
	case name == "recorded" || name == "recorded-per-day":
		text = formatSize(uint64(value))
	}
	if set == 0 {
		text += " (default)"
	}
	return text
}
