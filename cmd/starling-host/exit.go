package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/tool"
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

const exitCodesHelp = `The exit code says how a command ended:

        0    success
    1    the tool failed: it returned an error, trapped or panicked. Also any
         failure of this program or its environment, such as a full disk. If a
         command that checks runs cannot read on, it prints how many it has
         checked and gives no verdict on the others
    2    usage: an unknown command or flag, a missing path, a run that is not in
         the database, an input that is not JSON or does not match the tool's
         schema. Nothing ran and nothing was recorded
    3    a replay diverged, or a log is invalid: a byte was changed, or an event
         or a module is missing
    4    refused: the module was not accepted or does not build; the tool failed
         after the network policy denied its last request, or a policy denied
         the call; "policy explain" or "policy test" found a denial; an agent's
         model refused to answer; or a run cannot be replayed because one of its
         tools is not a module, because it is encrypted, or because the engine's
         call stack is too small
    5    the tool hit a limit: fuel, memory, output, effects, or its deadline; or
         an agent its budget, its last turn, or the length of an answer
  130    cancelled by SIGINT (Ctrl-C) or SIGTERM. The run is recorded as
         cancelled; a second signal ends the program at once

If a command checks several runs ("validate DB", "replay DB --all"), the worst
code wins: 3, 4, 1.

A tool can handle a request that the network policy denies. If it completes, the
exit code is 0.

Standard error has the errors, in lines that begin with "error:" and "hint:".
Standard output has only results.`

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

// explain converts an error of the packages below into the printed failure.
func explain(err error) *failure {
	var (
		known       *failure
		found       *guest.SourceError
		named       *artifact.Error
		refusal     *sandbox.Refusal
		description *guest.DescriptionError
		schema      *tool.SchemaError
		syntax      *canon.SyntaxError
		unsupported *agent.UnsupportedError
		missing     *guest.RecordedError
		absent      *starling.NotFoundError
		unopened    *starling.OpenError
		allow       *starling.AllowError
		input       *starling.InputError
		badCase     *toolcase.Error
		notPrivate  *keyfile.NotPrivateError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &absent):
		return &failure{code: exitUsage, message: absent.Error(), hint: absent.Hint}
	case errors.As(err, &unopened):
		return explainOpen(unopened)
	case errors.As(err, &allow):
		return &failure{code: exitUsage, message: fmt.Sprintf("--allow-host %q: %s", allow.Host, starling.PlainError(allow.Err))}
	case errors.As(err, &input):
		return &failure{code: exitUsage, message: input.Error(), hint: "pass a shorter input, or raise resources.limits.input of the policy"}
	case errors.As(err, &badCase):
		return &failure{code: exitUsage, message: badCase.Error(), hint: badCase.Hint}
	case errors.As(err, &notPrivate):
		return &failure{code: exitUsage, message: notPrivate.Error(), hint: pasteable("chmod 600", notPrivate.Path)}
	case errors.As(err, &named):
		codes := map[artifact.Kind]int{artifact.Wrong: exitUsage, artifact.Failed: exitFailed, artifact.Refused: exitRefused}
		return &failure{code: codes[named.Kind], message: named.Ref + ": " + named.Reason, hint: named.Hint}
	case errors.As(err, &found):
		f := &failure{code: exitUsage, message: found.Ref + ": " + found.Reason, hint: found.Hint}
		if found.Output != "" {
			f.code, f.details = exitRefused, printableLines(found.Output)
		}
		return f
	case errors.As(err, &refusal):
		return &failure{code: exitRefused, message: "module refused: " + starling.PlainError(refusal), hint: refusal.Hint}
	case errors.As(err, &description):
		if place, source, _ := strings.Cut(description.Script, "\n"); place != "" {
			return &failure{code: exitRefused, message: place, details: indented(source), hint: description.Hint()}
		}
		// The module's own output follows the reason. It is printed nowhere else.
		reason, wrote, _ := strings.Cut(description.Err.Error(), "\n")
		return &failure{code: exitRefused, message: "module refused: its description " + reason, details: indented(wrote), hint: description.Hint()}
	case errors.As(err, new(*config.Error)):
		return explain(explainFile(err))
	case errors.As(err, &schema):
		f := &failure{code: exitUsage, message: "the input does not match the tool's schema",
			hint: "show the schema with: starling-host tool describe TOOL"}
		for _, p := range schema.Problems {
			f.details = append(f.details, "  "+p.String())
		}
		return f
	case errors.As(err, &syntax):
		f := &failure{code: exitUsage, hint: syntax.Hint}
		f.message = fmt.Sprintf("the input is not JSON: line %d, column %d: %s", syntax.Line, syntax.Column, syntax.Msg)
		if syntax.Pointer != "" {
			f.details = []string{"  at " + syntax.Pointer}
		}
		return f
	case errors.As(err, &missing):
		return &failure{code: exitRefused, message: missing.Reason, hint: missing.Hint}
	}
	f := &failure{code: exitFailed, message: starling.PlainError(err)}
	switch is := func(target error) bool { return errors.Is(err, target) }; {
	case errors.As(err, &unsupported):
		f.code, f.message = exitRefused, starling.PlainError(unsupported)
	case is(agent.ErrProviderModelMismatch):
		f.code, f.needs = exitRefused, "--force"
	case is(event.ErrEncrypted):
		f.code, f.hint = exitRefused, "to decrypt runs of tenants, pass the master key: --key-file FILE (runs of erased tenants stay unreadable)"
	case is(sandbox.ErrTooDeep):
		f.code, f.message, f.hint = exitRefused, starling.PlainError(sandbox.ErrTooDeep), "use the compiler, which has a larger stack: --engine compiler"
	case is(tool.ErrHost):
		// The outcome of the call is unknown, so nothing of it is recorded.
		if host, ok := errors.AsType[*sandbox.HostFailure](err); ok {
			f.message = starling.PlainError(host)
		}
		f.code, f.message, f.hint = exitRefused, "this host cannot make the call: "+f.message, "check this machine: starling-host doctor"
	case errors.As(err, new(*eventlog.MissingTableError)) && is(eventlog.ErrSchemaOutdated):
		f.hint = "its runs can be read; to add to them, take them to a new database: starling-host archive DB runs.ndjson, then: starling-host import NEW.db runs.ndjson"
	case errors.As(err, new(*eventlog.MissingTableError)):
		f.code, f.hint = exitInvalid, missingHint
	case is(eventlog.ErrLogCorrupt):
		f.code = exitInvalid
	case is(eventlog.ErrSchemaTooNew):
		f.hint = "a newer starling-host wrote it, or one before the first release; list the formats that this one reads: starling-host version"
	case is(eventlog.ErrRunNotFound):
		f.code, f.hint = exitUsage, "list the runs with: starling-host runs DB"
	case is(eventlog.ErrSchemaOutdated):
		f.hint = "upgrade the database: starling-host migrate DB"
	case store.Denied(err):
		f.hint = deniedHint
	case store.DiskFailed(err):
		f.hint = diskHint
	case is(context.Canceled):
		f.code, f.message = exitCancelled, "cancelled"
	default:
		explainTenant(err, f)
	}
	return f
}

// explainOpen is a database that could not be opened.
func explainOpen(e *starling.OpenError) *failure {
	f := &failure{code: exitFailed, message: starling.PlainError(e.Err)}
	switch {
	case errors.As(e.Err, new(*eventlog.MissingTableError)): // no migration can make it
		f = explain(e.Err)
	case errors.Is(e.Err, eventlog.ErrSchemaOutdated):
		f.hint = pasteable("starling-host migrate", named(e.Where))
	case onServer(e.Where):
		// The driver reports each address that it tried on a line of its own.
		f.message = named(e.Where) + ": " + strings.Join(strings.Fields(f.message), " ")
		if store.Denied(e.Err) {
			f.hint = deniedHint
		}
	case errors.Is(e.Err, store.ErrForeignWAL):
		f.hint = foreignWALHint
	case errors.Is(e.Err, fs.ErrNotExist):
		f.code, f.message = exitUsage, fmt.Sprintf("%s: no folder %s", e.Where, filepath.Dir(e.Where))
		if strings.Contains(e.Where, ":/") {
			f.hint = "the address of a server begins with postgres:// or postgresql://"
		}
	default:
		*f = *explain(e.Err)
		f.message = e.Where + ": " + f.message
		if f.hint == "" && errors.Is(e.Err, fs.ErrPermission) {
			f.hint = "you need the right to write the file and its folder; run records elsewhere with --db FILE"
		}
	}
	return f
}

// deniedHint is for a role of a server that lacks a right.
const deniedHint = `the owner of the tables makes them and says who may do what: starling-host migrate --help`

// maxMessage bounds an error's line, in characters: a log may claim anything of a run.
const maxMessage = 4000

// hint prints what to do next, beside a result.
func (a *app) hint(text string) { a.stderr.printf("%s %s\n", styled{aside, "hint:"}, text) }

// report prints a failure and returns its exit code.
func (f *failure) report(w *printer) int {
	if f.message != "" {
		w.printf("%s %s\n", styled{bad, "error:"}, shorten(printable(display.OneLine(f.message)), maxMessage))
	}
	for _, line := range f.details {
		w.printf("%s\n", line)
	}
	if f.hint != "" {
		w.printf("%s %s\n", styled{aside, "hint:"}, f.hint)
	}
	return f.code
}
