package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/tenant"
)

// The exit codes. They are a contract: "starling-host help exit-codes".
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitInvalid   = 3
	exitRefused   = 4
	exitLimit     = 5
	exitCancelled = 130
)

// failure is an error with the exit code of the program and the lines to print.
type failure struct {
	code    int
	message string   // one line; empty when everything has been said
	details []string // further lines, printable
	hint    string   // one line, or empty
	needs   string   // a flag that makes the command work; the hint repeats the command with it
}

func (f *failure) Error() string { return f.message }

// usagef is a failure of the command line.
func usagef(hint, format string, args ...any) error {
	return &failure{code: exitUsage, message: fmt.Sprintf(format, args...), hint: hint}
}

// needsFlag is a failure of a command line that lacks a flag, which may have a value.
func needsFlag(flag, format string, args ...any) error {
	return &failure{code: exitUsage, message: fmt.Sprintf(format, args...), needs: flag}
}

// silent ends the program with a code when the command has said all there is.
func silent(code int) error {
	if code == exitOK {
		return nil
	}
	return &failure{code: code}
}

// unless is how a command ends that has printed its result, unless all is well.
func unless(well bool, code int) error {
	if well {
		return nil
	}
	return silent(code)
}

// kinds are errors of other packages that say all there is: the code of each, the beginning of its
// text, and what is printed in place of that.
var kinds = []struct {
	in       func(error) error
	code     int
	from, to string
}{
	{in[*starling.NotFoundError], exitUsage, "", ""},
	{in[*starling.AllowError], exitUsage, "", "--allow-host "},
	{in[*toolcase.Error], exitUsage, "", ""},
	{in[*keyfile.NotPrivateError], exitUsage, "", ""},
	{in[*artifact.Error], exitUsage, "artifact: ", ""},
	{in[*guest.SourceError], exitUsage, "registry: ", ""},
	{in[*sandbox.Refusal], exitRefused, "rewrite: ", "module refused: "},
	{in[*guest.DescriptionError], exitRefused, "guest: the module's", "module refused: its"},
	{in[*serve.RightsError], exitUsage, "serve: ", ""},
	{in[*guest.RecordedError], exitRefused, "recorded: ", ""},
	{in[*agent.UnsupportedError], exitRefused, "replay: ", ""},
}

// in returns the error of a type in a chain, or nil.
func in[T error](err error) error {
	if e, ok := errors.AsType[T](err); ok {
		return e
	}
	return nil
}

// explain converts an error of the packages below into the printed failure.
func explain(err error) *failure {
	if known, ok := errors.AsType[*failure](err); ok {
		return known
	}
	if unopened, ok := errors.AsType[*starling.OpenError](err); ok {
		return explainOpen(unopened)
	}
	if setup, ok := errors.AsType[*serve.SetupError](err); ok && in[*keyfile.NotPrivateError](err) == nil {
		f := explain(explainFile(setup.Err))
		if f.hint = cmp.Or(setup.Hint, f.hint); setup.Machine {
			f.code = exitFailed
		}
		return f
	}
	for _, kind := range kinds {
		e := kind.in(err)
		if e == nil {
			continue
		}
		text, found := strings.CutPrefix(e.Error(), kind.from)
		if found {
			text = kind.to + text
		}
		f := &failure{code: kind.code, message: strings.TrimPrefix(text, "guest: "), hint: hint.Of(e)}
		switch e := e.(type) {
		case *artifact.Error:
			f.code = map[artifact.Kind]int{artifact.Wrong: exitUsage, artifact.Failed: exitFailed, artifact.Refused: exitRefused}[e.Kind]
		case *guest.SourceError:
			if f.message = e.Ref + ": " + e.Reason; e.Output != "" {
				f.code, f.details = exitRefused, terminal.PrintableLines(e.Output)
			}
		case *guest.DescriptionError: // what the module wrote, which is printed nowhere else
			reason, wrote, _ := strings.Cut(f.message, "\n")
			f.message, f.details = reason, terminal.Indented(wrote)
		}
		return f
	}
	f := &failure{code: exitFailed, message: starling.PlainError(err), hint: hintOf(err)}
	var (
		file  *config.Error
		input *starling.InputError
	)
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case errors.As(err, &file):
		return &failure{code: exitUsage, message: file.Message(), details: terminal.PrintableLines(file.Excerpt()), hint: file.Hint}
	case errors.As(err, &input):
		f.code, f.message, f.hint = exitUsage, input.Error(), input.Advice()
		if schema, ok := input.Cause.(*tool.SchemaError); ok { // a line for each problem
			f.message, _, _ = strings.Cut(f.message, ": ")
			f.details = terminal.Indented(strings.Join(schema.Brief(), "\n"))
		}
	case is(agent.ErrProviderModelMismatch):
		f.code, f.needs = exitRefused, "--force"
	case is(event.ErrEncrypted):
		f.code = exitRefused
	case is(sandbox.ErrTooDeep):
		f.code, f.message = exitRefused, starling.PlainError(sandbox.ErrTooDeep)
	case is(tool.ErrHost):
		// The outcome of the call is unknown, so nothing of it is recorded.
		if host, ok := errors.AsType[*sandbox.HostFailure](err); ok {
			f.message = starling.PlainError(host)
		}
		f.code, f.message, f.hint = exitRefused, "this host cannot make the call: "+f.message, "check this machine: starling-host doctor"
	case is(eventlog.ErrLogCorrupt):
		f.code = exitInvalid
	case is(eventlog.ErrRunNotFound):
		f.code = exitUsage
	case is(context.Canceled):
		f.code, f.message = exitCancelled, "cancelled"
	default:
		for _, e := range tenant.Errors {
			if is(e) { // the name of the package may follow the name of the subject
				f.code, f.message = exitUsage, strings.Replace(err.Error(), "tenant: ", "", 1)
			}
		}
	}
	return f
}

// explainOpen is a database that could not be opened.
func explainOpen(e *starling.OpenError) *failure {
	f, text := explain(e.Err), starling.PlainError(e.Err)
	switch {
	case errors.As(e.Err, new(*eventlog.MissingTableError)): // no migration can make it
	case errors.Is(e.Err, eventlog.ErrSchemaOutdated):
		f.hint = display.Command("starling-host migrate", named(e.Where))
	case onServer(e.Where):
		// The driver reports each address that it tried on a line of its own.
		f.code, f.message = exitFailed, named(e.Where)+": "+strings.Join(strings.Fields(text), " ")
	case errors.Is(e.Err, store.ErrForeignWAL):
	case errors.Is(e.Err, fs.ErrNotExist):
		f.code, f.message = exitUsage, fmt.Sprintf("%s: no folder %s", e.Where, filepath.Dir(e.Where))
		if strings.Contains(e.Where, ":/") {
			f.hint = "the address of a server begins with postgres:// or postgresql://"
		}
	default:
		f.message = e.Where + ": " + f.message
		if f.hint == "" && errors.Is(e.Err, fs.ErrPermission) {
			f.hint = "you need the right to write the file and its folder; run records elsewhere with --db FILE"
		}
	}
	return f
}

// hintOf returns the hint of an error, also for failures of a disk and a server.
func hintOf(err error) string {
	switch {
	case hint.Of(err) != "":
		return hint.Of(err)
	case store.Denied(err):
		return "the owner of the tables makes them and says who may do what: starling-host migrate --help"
	case store.DiskFailed(err):
		return "make room on the disk, or mend it; also to read takes a little room beside the database: df -h"
	}
	return ""
}

// maxMessage bounds an error's line, in characters: a log may claim anything of a run.
const maxMessage = 4000

// hint prints what to do next, beside a result.
func (a *app) hint(text string) {
	a.stderr.Printf("%s %s\n", terminal.Aside.Of("hint:"), text)
}

// report prints a failure and returns its exit code.
func (f *failure) report(w *terminal.Printer) int {
	if f.message != "" {
		w.Printf("%s %s\n", terminal.Bad.Of("error:"), display.Shorten(display.Printable(display.OneLine(f.message)), maxMessage))
	}
	for _, line := range f.details {
		w.Printf("%s\n", line)
	}
	if f.hint != "" {
		w.Printf("%s %s\n", terminal.Aside.Of("hint:"), f.hint)
	}
	return f.code
}
