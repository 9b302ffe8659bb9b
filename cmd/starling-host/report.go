package main

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// How many lines of a tool's log a terminal shows: the first and the last ones.
const (
	logHead = 40
	logTail = 20
)

// reportRun prints the result of a run and returns its failure, if any.
func (a *app) reportRun(t *starling.Tool, run *starling.Run, err error, f runFlags) error {
	for i, lines := 0, terminal.PrintableLines(run.Log); i < len(lines); i++ {
		if more := len(lines) - logHead - logTail; i == logHead && more > 0 && a.stderr.Terminal {
			a.stderr.Printf("%s: ... %s: %s\n", t.Name(), display.Plural(more, "more line"), display.Command("starling-host show --full", run.Database, run.ID))
			i += more
		}
		a.stderr.Printf("%s: %s\n", t.Name(), lines[i])
	}
	m := run.Meter
	a.stderr.Printf("fuel %s, wall time %s, peak memory %s, %s, %s in, %s out\n",
		display.Digits(m.Fuel), display.Duration(run.Wall()), display.Size(m.PeakMemoryBytes),
		display.Plural(m.Effects, "effect"), display.Size(uint64(m.BytesIn)), display.Size(uint64(m.BytesOut)))
	a.reportChanged(run.Changed)
	a.stderr.Printf("replay: %s\n", display.Command("starling-host replay", run.Database, run.ID))
	printed := error(nil)
	switch {
	case a.asJSON:
		printed = a.writeValue(run)
	case run.Failure == nil:
		printed = a.writeDocument(run.Result)
	}
	failed, ok := errors.AsType[*starling.CallError](err)
	if printed != nil || !ok {
		return printed
	}
	err = outcome(t, failed, f)
	if out, ok := errors.AsType[*failure](err); ok && run.Failure != nil && run.Failure.Type == event.ErrorFuel {
		out.hint += ", or see the line where it stopped: " + display.Command("starling-host debug", run.Database, run.ID)
	}
	return err
}

// outcome returns how the program ends after a call that did not complete.
func outcome(t *starling.Tool, e *starling.CallError, f runFlags) error {
	if e.Run.Status == eventlog.StatusCancelled {
		return &failure{code: exitCancelled, message: "cancelled; the run is recorded as cancelled"}
	}
	out := failed(t, e.Run.Failure)
	switch kind := e.Run.Failure.Type; {
	case kind == event.ErrorFuel:
		out.code, out.hint = exitLimit, "raise the budget with --fuel"
	case kind == event.ErrorTimeout:
		out.code, out.hint = exitLimit, "give it more time with --timeout"
	case kind == event.ErrorLimit:
		out.code, out.hint = exitLimit, limitHint(e, f)
	case kind == event.ErrorTool && regexp.MustCompile(`(MemoryError\b|InternalError: out of memory)`).MatchString(e.Run.Failure.Message) && e.Run.Meter.PeakMemoryBytes > uint64(t.Sandbox().Limits.MemoryPages)<<15:
		out.hint = "give it more memory with --memory" // an interpreter reports a full memory as an exception
	case kind == event.ErrorPanic && strings.HasSuffix(out.message, "trap: out of bounds memory access"):
		out.hint = "look for a wild pointer, a recursion without an end, or large arrays on the stack"
	case e.Denied != nil:
		out.code, out.hint = exitRefused, allowHint(e, out.message, f)
	}
	return out
}

// failed returns the failure of a call: the tool's own error, or the reason why the call was ended.
// In the latter case the error includes the guest's output, often a stack trace. It has been
// printed as the log, so the first line is enough.
func failed(t *starling.Tool, f *starling.Failure) *failure {
	reason, more, _ := strings.Cut(strings.TrimPrefix(f.Message, "tool: "), "\n")
	out := &failure{code: exitFailed, message: t.Name() + " failed: " + reason}
	if wrong, ok := strings.CutPrefix(reason, guest.NotJSON); ok && t.Sandbox().ABI != abi.Version {
		out.message = t.Name() + " failed: what it printed to standard output is not JSON: " + strings.TrimPrefix(wrong, "canon: JSON ")
		out.hint = `a WASI command prints its result as one JSON document, a text in double quotes, and all else to standard error; for any text, run it with --arg or --stdin, or give it a sidecar`
	}
	if f.Type == event.ErrorTool {
		out.details = terminal.Indented(more)
	} else if first, _, _ := strings.Cut(more, "\n"); first != "" {
		out.message += ": " + first
	}
	return out
}

// limitHint names the flag that moves a limit, if there is one.
func limitHint(err error, f runFlags) string {
	hint := ""
	switch {
	case errors.Is(err, tool.ErrMemory):
		hint = "give it more memory with --memory"
	case strings.Contains(err.Error(), "call stack deeper than"):
		return "look for a recursion without an end"
	case errors.Is(err, tool.ErrEffects):
		hint = "let it have more effects with --effects"
	case strings.Contains(err.Error(), ": output of "):
		return "let the tool return less: a part, a page or a summary"
	}
	if hint != "" && f.policy != "" {
		hint += ", up to resources.limits of " + display.ShellWord(f.policy)
	}
	return hint
}

// allowHint returns the command that would have allowed a denied request, after the reason if the
// error lacks it.
func allowHint(e *starling.CallError, message string, f runFlags) string {
	d, why := e.Denied, ""
	if !strings.Contains(message, d.Reason) {
		why = d.Reason + "; "
	}
	switch {
	case f.policy != "" && d.Host == "" && e.Unnamed:
		return "name the tool under permissions.tools in " + display.ShellWord(f.policy)
	case d.Host != "" && withheld().MatchString(d.Reason):
		name := withheld().FindStringSubmatch(d.Reason)[1]
		if strings.HasPrefix(d.Reason, "there is no ") {
			return why + "set its value, such as: export STARLING_SECRET_" + name + "=VALUE"
		}
		return why + "allow it in " + cmp.Or(f.policy, "a policy, the file of --policy") + ": secrets: [{name: " + name + ", audience: [" + d.Host + "], header: Authorization}]"
	case f.policy != "" && d.Host == "":
		return "give it other arguments, or change " + display.ShellWord(f.policy)
	case f.policy != "":
		flags := ""
		if d.Method != "GET" {
			flags = " --method " + display.ShellWord(d.Method)
		}
		if r := d.Request; r != nil { // with what the decision was about, so that explain decides the same
			for _, name := range slices.Sorted(maps.Keys(r.Header)) {
				for _, value := range r.Header[name] {
					flags += " --header " + display.ShellWord(name+": "+value)
				}
			}
			if len(r.Body) > 0 && len(r.Body) <= 1000 && utf8.Valid(r.Body) {
				flags += " --body " + display.ShellWord(string(r.Body))
			}
		}
		return why + "see what would allow it: " + display.Command("starling-host policy explain", f.policy, e.Run.Tool, d.URL) + flags
	}
	flags := allowFlags(d.Host, f.callFlags)
	if flags == "" || !regexp.MustCompile(`is not an allowed (destination|address)|an address that is not allowed$`).MatchString(d.Reason) {
		return strings.TrimSuffix(why, "; ")
	}
	return why + "allow it: starling-host run TOOL INPUT FLAGS" + flags
}

// withheld is the host's reason for a denied request with a secret that no policy sends or that has
// no value.
var withheld = lazy.Regexp(`^(?:the|there is no|.*: it has no) secret ([A-Z][A-Z0-9_]*)(?: may not be sent)?$`)

// allowFlags returns the flags that a command lacks to reach a host.
func allowFlags(host string, f callFlags) (flags string) {
	if !slices.Contains(f.allow, host) {
		flags = " --allow-host " + display.ShellWord(host)
	}
	u := &url.URL{Host: host}
	if !f.allowPrivate && (flags == "" || u.Hostname() == "localhost" || egress.RefusedAddress(u.Hostname(), false) != "") {
		flags += " --allow-private"
	}
	return flags
}
