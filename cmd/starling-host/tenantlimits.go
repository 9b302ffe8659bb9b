package main

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

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

// limits are the fields of [tenant.Limits].
var limits = reflect.VisibleFields(reflect.TypeFor[tenant.Limits]())

// limitName is the name of a limit's flag.
func limitName(limit reflect.StructField) string {
	return strings.ReplaceAll(limit.Tag.Get("yaml"), "_", "-")
}

const weightName = "weight"

func (l *limitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	for i, limit := range limits {
		flags.Var(limitFlag(reflect.ValueOf(&l.Limits).Elem().Field(i)), limitName(limit), limit.Tag.Get("usage"))
	}
	l.weight = 1
	flags.Var(weightFlag(&l.weight), weightName, fmt.Sprintf("share of the host beside others, 1 to %d", tenant.MaxWeight))
}

// apply changes t by the flags that were given, and reports whether there are any.
func (l *limitFlags) apply(cmd *cobra.Command, t *tenant.Tenant) (any bool) {
	given := cmd.Flags().Changed
	for i, limit := range limits {
		if given(limitName(limit)) {
			reflect.ValueOf(&t.Limits).Elem().Field(i).Set(reflect.ValueOf(l.Limits).Field(i))
			any = true
		}
	}
	if given(weightName) {
		t.Weight, any = l.weight, true
	}
	return any
}

// limitFlag is the value of a limit: a number, "default" or "none".
func limitFlag(value reflect.Value) *flagValue {
	kind := "N"
	if value.Kind() == reflect.Int64 {
		kind = "SIZE"
	}
	return &flagValue{kind: kind + "|default|none", set: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 31)
		switch {
		case s == "default":
			value.SetInt(0)
			return nil
		case s == "none":
			value.SetInt(-1)
			return nil
		case kind == "SIZE":
			n, err = display.ParseCount(s, display.SizeUnits())
		case err != nil || n == 0:
			err = errors.New("must be a positive whole number, default or none")
		}
		value.SetInt(int64(n))
		return err
	}}
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

func (a *app) limitsCommand() *cobra.Command {
	var f hostFlags
	var l limitFlags
	return subcommand("limits ID", "show or change the limits of a tenant", func(cmd *cobra.Command, args []string) error {
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
			return a.printLimits(now)
		})
	}, f.addDatabase, a.outputFlag, l.add)
}

// printLimits prints the limits as they are with the defaults, -1 for no bound.
func (a *app) printLimits(t tenant.Tenant) error {
	now := t.Limits.Or(tenant.DefaultLimits())
	return a.emit(now, func() {
		for i, limit := range limits {
			value := reflect.ValueOf(now).Field(i)
			text := fmt.Sprint(value)
			switch {
			case value.Int() < 0:
				text = "none"
			case value.Kind() == reflect.Int64:
				text = display.Size(uint64(value.Int()))
			}
			if reflect.ValueOf(t.Limits).Field(i).IsZero() {
				text += " (default)"
			}
			a.stdout.Printf("%-20s  %s\n", limitName(limit), text)
		}
		a.stdout.Printf("%-20s  %d\n", weightName, t.Weight)
	})
}
