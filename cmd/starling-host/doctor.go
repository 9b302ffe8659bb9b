package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve"
)

func (a *app) doctorCommand() *cobra.Command {
	var f hostFlags
	var hostFile string
	var deep bool
	cmd := subcommand("doctor [DB]", "check this machine and a database", func(cmd *cobra.Command, args []string) error {
		file := &serve.File{KeyFile: f.keyFile}
		var more []serve.Finding
		switch {
		case hostFile != "" && (len(args) > 0 || f.keyFile != ""):
			return usagef(display.Command("starling-host doctor --config", hostFile), "doctor: --config excludes DB and --key-file: the file names them")
		case hostFile != "":
			var err error
			if file, err = serve.LoadFile(hostFile); err != nil {
				file, more = &serve.File{}, []serve.Finding{{Check: "config", State: serve.StateBad, Err: explainFile(err)}}
			} else {
				more = file.Check(cmd.Context())
			}
		case len(args) > 0:
			file.Database = args[0]
		case !isNew(defaultDatabase):
			file.Database = defaultDatabase
		}
		return a.doctor(cmd.Context(), file, deep, more)
	}, f.addKey)
	cmd.Flags().StringVar(&hostFile, "config", "", "check the host that `FILE` describes")
	cmd.Flags().BoolVar(&deep, "deep", false, "compare all events with what the database keeps about their runs")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// findingIndent is where a finding begins on its line.
const findingIndent = 25

// doctor checks the machine and the host that the file describes. more has earlier findings.
func (a *app) doctor(ctx context.Context, file *serve.File, deep bool, more []serve.Finding) error {
	findings := []serve.Finding{
		{Check: "version", State: serve.StateOK, Found: fmt.Sprintf("%s, %s, %s/%s, %s", agent.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, display.Plural(runtime.NumCPU(), "CPU"))},
		{Check: "environment", State: serve.StateOK, Found: variablesSet()},
	}
	findings = append(append(findings, serve.CheckMachine(ctx)...), more...)
	if file.Database != "" {
		findings = append(findings, file.CheckDatabase(ctx, openDatabase, deep)...)
	}
	code := exitOK
	for _, f := range findings {
		if f.State == serve.StateBad {
			code = exitFailed
		}
		if f.Err != nil {
			why := explain(f.Err)
			if f.Found, f.Fix = why.message, why.hint; f.Check == "database" {
				f.Fix = ""
				if why.code == exitInvalid && !onServer(file.Database) {
					f.Fix = display.Command("starling-host restore BACKUP", file.Database)
				}
			}
		}
		lines := a.stdout.Wrap(f.Found, findingIndent)
		a.stdout.Printf("%s  %-14s  %s\n", terminal.StatusStyle(f.State).Of(fmt.Sprintf("%-7s", f.State)), f.Check, lines[0])
		for _, line := range lines[1:] {
			a.stdout.Printf("%*s%s\n", findingIndent, "", line)
		}
		if f.Fix != "" {
			a.stdout.Printf("%-7s  %-14s  fix: %s\n", "", "", f.Fix)
		}
	}
	return silent(code)
}

// variablesSet returns the names of the environment variables that affect this program. Their
// values may be secret.
func variablesSet() string {
	var set []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		known := strings.HasPrefix(name, "STARLING_") || strings.HasPrefix(name, "OTEL_") || name == "XDG_CACHE_HOME" || name == "GOGC" || name == "GOMEMLIMIT"
		if known && value != "" {
			set = append(set, name)
		}
	}
	if slices.Sort(set); len(set) == 0 {
		return "no variables of this program are set"
	}
	return strings.Join(set, ", ")
}
