package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
)

// flagValue is the value of a flag that is more than a text.
type flagValue struct {
	kind     string // in the help text
	standard string // the default in the help text; empty for none
	set      func(string) error
	given    string // the value set by the user
}

func (v *flagValue) String() string { return cmp.Or(v.given, v.standard) }
func (v *flagValue) Type() string   { return v.kind }

func (v *flagValue) Set(s string) error {
	v.given = s
	return v.set(s)
}

// counted is a number with a suffix, at most most; 0 means 2^63-1.
func counted(value *uint64, units []display.Unit, kind string, most uint64) *flagValue {
	return &flagValue{kind: kind, set: func(s string) error {
		n, err := display.ParseCount(s, units)
		if err != nil {
			return err
		}
		if limit := cmp.Or(most, math.MaxInt64); n > limit {
			return fmt.Errorf("must be at most %s", display.Count(limit, units, ""))
		}
		*value = n
		return nil
	}}
}

// choice is one of a few words.
func choice(value *string, choices ...string) *flagValue {
	return &flagValue{kind: strings.Join(choices, "|"), standard: *value, set: func(s string) error {
		if !slices.Contains(choices, s) {
			return fmt.Errorf("must be %s", strings.Join(choices, " or "))
		}
		*value = s
		return nil
	}}
}

// choiceFlag adds a flag that takes one of a few words, and completes them.
func choiceFlag(cmd *cobra.Command, name, short, usage string, v *flagValue) {
	cmd.Flags().VarP(v, name, short, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(strings.Split(v.kind, "|"), cobra.ShellCompDirectiveNoFileComp))
}

// aged is a positive duration, also in days.
func aged(value *time.Duration) *flagValue {
	return &flagValue{kind: "AGE", set: func(s string) error {
		d, err := config.ParseDuration(s)
		if err != nil || d <= 0 {
			return errors.New("must be a positive duration, such as 90m, 36h or 30d")
		}
		*value = d
		return nil
	}}
}

// outputFlag adds -o to a command.
func (a *app) outputFlag(cmd *cobra.Command) {
	output := "text"
	v := choice(&output, "text", "json")
	set := v.set
	v.set = func(s string) error {
		a.asJSON = s == "json"
		return set(s)
	}
	choiceFlag(cmd, "output", "o", "format of standard output", v)
}

// Where a tool runs, as --isolation names it.
const (
	isolationInline  = "inline"
	isolationProcess = "process"
)

// isolationFlag adds --isolation.
func isolationFlag(cmd *cobra.Command, value *string) {
	*value = isolationInline
	choiceFlag(cmd, "isolation", "", "run the tool inline or in a separate process", choice(value, isolationInline, isolationProcess))
}

// engineV8 is the engine of JavaScript in Node, which only replays.
const engineV8 = "v8"

// engineFlag adds --engine.
func engineFlag(cmd *cobra.Command, value *string) {
	choiceFlag(cmd, "engine", "", "engine that executes modules, compiler, machine, interpreter or v8 (default the best that works here)",
		choice(value, string(starling.Compiler), string(starling.Machine), string(starling.Interpreter), engineV8))
}

// policyFlag adds --policy to the commands that run tools.
func policyFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "policy", "", "let the policy in `FILE` decide what tools may do")
}

// openPolicy reads the policy of a run. It returns nil without a path.
func openPolicy(path string) (*policy.Policy, error) {
	if path == "" {
		return nil, nil
	}
	return loadPolicy(path)
}
