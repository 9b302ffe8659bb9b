package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// runDocument is what "run -o json" prints.
type runDocument struct {
	RunID      string          `json:"run_id"`
	Database   string          `json:"database"`
	Tool       string          `json:"tool"`
	Module     string          `json:"module"`
	Status     string          `json:"status"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      *errorDocument  `json:"error,omitempty"`
	Meter      meterDocument   `json:"meter"`
	Log        string          `json:"log,omitempty"`
	Events     uint64          `json:"events"`
	MerkleRoot string          `json:"merkle_root"`
}

type errorDocument struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type meterDocument struct {
	Fuel            uint64 `json:"fuel"`
	PeakMemoryBytes uint64 `json:"peak_memory_bytes"`
	WallMs          int64  `json:"wall_ms"`
	Effects         int    `json:"effects"`
	BytesIn         int    `json:"bytes_in"`
	BytesOut        int    `json:"bytes_out"`
}

// reportRun prints a run's outcome and returns the failure that it ends with.
func (a *app) reportRun(t *guest.Tool, r *agent.Result, ended ending, f runFlags) error {
	for _, line := range printableLines(r.Meter.Log) {
		a.stderr.printf("%s: %s\n", t.Name(), line)
	}
	a.stderr.printf("fuel %s, wall time %s, peak memory %s, %s, %s in, %s out\n",
		grouped(r.Meter.Fuel), formatDuration(r.Duration), formatSize(r.Meter.PeakMemory),
		plural(r.Effects, "effect"), formatSize(uint64(r.BytesIn)), formatSize(uint64(r.BytesOut)))
	a.stderr.printf("replay: %s\n", pasteable("starling-host replay", named(f.database), r.RunID))
	if err := a.printOutcome(t, r, f); err != nil {
		return err
	}
	return outcome(t, r, ended, f)
}

func (a *app) printOutcome(t *guest.Tool, r *agent.Result, f runFlags) error {
	if f.output == outputText {
		if r.Terminal != event.KindRunCompleted {
			return nil
		}
		return a.writeDocument(r.Output)
	}
	doc := runDocument{
		RunID:    r.RunID,
		Database: named(f.database),
		Tool:     t.Name(),
		Module:   fmt.Sprintf("%x", t.Sandbox().Module),
		Status:   terminalStatus(r.Terminal),
		Meter: meterDocument{
			Fuel: r.Meter.Fuel, PeakMemoryBytes: r.Meter.PeakMemory, WallMs: r.Duration.Milliseconds(),
			Effects: r.Effects, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
		},
		Log:        r.Meter.Log,
		Events:     r.Events,
		MerkleRoot: fmt.Sprintf("%x", r.MerkleRoot),
	}
	if r.Terminal == event.KindRunCompleted {
		doc.Result = r.Output
	} else {
		doc.Error = &errorDocument{Type: r.ErrorType, Message: r.Error}
	}
	return a.writeValue(doc)
}

// ending is what is known of the end of a call beside what is recorded.
type ending struct {
	err     error   // of the tool
	denied  *denied // what the policy refused last, if it was the last thing that the tool asked for
	unnamed bool    // the policy has no rules for the tool
}

// of returns a tool that leaves its error in e.
func (e *ending) of(t tool.Tool) tool.Tool {
	return tool.Wrap(t, func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return func(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
			output, err = inner(ctx, input)
			e.err = err
			return output, err
		}
	})
}

// outcome returns how the program ends after a run, nil if all is well.
func outcome(t *guest.Tool, r *agent.Result, ended ending, f runFlags) error {
	out := failed(t, r)
	switch {
	case r.Terminal == event.KindRunCompleted:
		return nil
	case r.Terminal == event.KindRunCancelled:
		return &failure{code: exitCancelled, message: "cancelled; the run is recorded as cancelled"}
	case r.ErrorType == event.ErrorFuel:
		out.code, out.hint = exitLimit, "raise the budget with --fuel"
	case r.ErrorType == event.ErrorTimeout:
		out.code, out.hint = exitLimit, "give it more time with --timeout"
	case r.ErrorType == event.ErrorLimit:
		out.code, out.hint = exitLimit, limitHint(ended.err, f)
	case ended.denied != nil:
		out.code, out.hint = exitRefused, allowHint(ended, f)
	}
	return out
}

// failed is the failure of a call: what the tool says of it, or why it was ended.
// Then what the guest wrote, often a stack trace, is part of the error, and as its
// log it has been printed, so of that the first line will do.
func failed(t *guest.Tool, r *agent.Result) *failure {
	reason, more := splitError(r.Error)
	out := &failure{code: exitFailed, message: t.Name() + " failed: " + reason}
	if wrong, ok := strings.CutPrefix(reason, guest.NotJSON); ok && t.Sandbox().ABI != abi.Version {
		out.message = t.Name() + " failed: what it printed to standard output is not JSON: " + strings.TrimPrefix(wrong, "canon: JSON ")
		out.hint = `a WASI command prints its result as one JSON document, a text in double quotes, and all else to standard error`
	}
	if r.ErrorType == event.ErrorTool && t.Sandbox().ABI == abi.Version {
		out.details = indented(more)
	} else if first, _, _ := strings.Cut(more, "\n"); first != "" {
		out.message += ": " + first
	}
	return out
}

// splitError returns the first line of a call's error, and those below it.
func splitError(text string) (reason, more string) {
	reason, more, _ = strings.Cut(strings.TrimPrefix(text, "tool: "), "\n")
	return reason, more
}

// limitHint names the flag that moves a limit, if there is one.
func limitHint(err error, f runFlags) string {
	hint := ""
	switch {
	case errors.Is(err, tool.ErrMemory):
		hint = "give it more memory with --memory"
	case errors.Is(err, tool.ErrEffects):
		hint = "let it have more effects with --effects"
	}
	if hint != "" && f.policy != "" {
		hint += ", as far as resources.limits of " + shellWord(f.policy) + " goes"
	}
	return hint
}

// allowHint says which flag would have let a denied request pass.
func allowHint(e ending, f runFlags) string {
	d := e.denied
	switch {
	case f.policy != "" && d.host == "" && e.unnamed:
		return "name the tool under permissions.tools in " + shellWord(f.policy)
	case f.policy != "" && d.host == "":
		return "give it other arguments, or change " + shellWord(f.policy)
	case f.policy != "":
		return d.why + "; see what would allow it with: starling-host policy explain"
	}
	if !slices.Contains(f.allow, d.host) {
		hint := fmt.Sprintf("%s; allow it with --allow-host %s", d.why, shellWord(d.host))
		if u := (&url.URL{Host: d.host}); !f.allowPrivate && (u.Hostname() == "localhost" || egress.RefusedAddress(u.Hostname(), false) != "") {
			hint += " --allow-private"
		}
		return hint
	}
	if !f.allowPrivate {
		return d.why + "; addresses that are not public need --allow-private"
	}
	return d.why
}
