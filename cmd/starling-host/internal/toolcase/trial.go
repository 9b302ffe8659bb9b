package toolcase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/keyfile"
)

// Trial is a tool that its author tries.
type Trial struct {
	DB      *starling.DB
	Module  *starling.Module
	Options starling.ToolOptions
	// Text words the error of a call: a [*starling.CallError], or one of its input.
	Text func(t *starling.Tool, err error) string
}

// Call calls a tool with an input. The tool may call the others. Failure is the text of a call that did not complete,
// or whose input was refused, and run is nil for the latter. An error means that there is no outcome.
func (t Trial) Call(ctx context.Context, name string, input []byte, others []*starling.Tool) (run *starling.Run, failure string, err error) {
	t.Options.Name = name
	chosen, err := t.Module.Choose(t.Options)
	switch {
	case err != nil && name == "":
		return nil, "", &Error{Reason: err.Error(), Hint: "name it in the case, on the line below: -- tool --"}
	case err != nil:
		return nil, "", err
	case len(others) > 0:
		chosen = chosen.Calling(others...)
	}
	doc, err := chosen.Input(input)
	if err != nil {
		return nil, t.Text(chosen, err), nil
	}
	run, err = chosen.CallAs(ctx, starling.NewRunID(), doc)
	if _, ok := errors.AsType[*starling.CallError](err); !ok {
		return run, "", err
	} else if run.Status == eventlog.StatusCancelled {
		return run, "", context.Canceled
	}
	return run, t.Text(chosen, err), nil
}

// UnrecordedError is the reason why nothing of a call is recorded in a case.
type UnrecordedError struct {
	Reason  string
	Refused []string // lines about the input, which was refused before a call
	Host    string   // to which a request was denied
	Tool    bool     // a call of another tool was refused
}

// Error returns the reason.
func (e *UnrecordedError) Error() string { return e.Reason }

// Record makes the call of a case for real, and replaces what the case has recorded. The error is an
// [*UnrecordedError] if the call has no outcome that a case can repeat, or one that its author did not expect.
func (t Trial) Record(ctx context.Context, c *Case, others []*starling.Tool) error {
	denied := c.denied()
	run, failure, err := t.Call(ctx, c.Tool, c.Input, others)
	if err != nil {
		return err
	}
	made := &recorded{}
	if run != nil {
		all, err := recordedCalls(ctx, t.DB, run.ID)
		if err != nil {
			return err
		}
		made = all[len(all)-1]
	} else if c.Error == "" {
		return &UnrecordedError{Reason: "the input was refused before a call; nothing is recorded", Refused: strings.Split(failure, "\n")}
	}
	if err := c.record(made, failure); err != nil {
		return &UnrecordedError{Reason: err.Error(), Tool: errors.Is(err, errRefused)}
	}
	if host := c.denied(); host != "" && denied == "" {
		return &UnrecordedError{Reason: fmt.Sprintf("a request to %s was denied; nothing is recorded", host), Host: host}
	}
	return nil
}

// Cases makes cases of the calls of the tool in recorded runs of a database, and passes them to found. A call that no
// case can repeat goes to skipped.
func (t Trial) Cases(ctx context.Context, db *starling.DB, runs []string, ref string, found func(*Case) error, skipped func(why string)) error {
	for _, id := range runs {
		calls, err := recordedCalls(ctx, db, id)
		if err != nil {
			return err
		}
		for i, call := range calls {
			t.Options.Name = call.tool
			chosen, err := t.Module.Choose(t.Options)
			if err != nil {
				continue // a call of another tool
			}
			failure := ""
			if call.outcome != nil {
				failure = t.Text(chosen, &starling.CallError{Run: &starling.Run{ID: id, Failure: call.outcome}})
			}
			c := &Case{Comment: "Recorded as run " + id + ".\n"}
			input, err := canon.ToJSON(call.args)
			if err == nil {
				c.Input = encode(json.RawMessage(input))
				err = c.record(call, failure)
			}
			if err != nil {
				skipped(fmt.Sprintf("run %s, call %d: %v", id, i+1, err))
				continue
			}
			if len(t.Module.Tools()) > 1 {
				c.Tool = call.tool
			}
			c.Name = fmt.Sprintf("%s-%s", call.tool, strings.ToLower(id[max(len(id)-8, 0):]))
			if len(calls) > 1 {
				c.Name += fmt.Sprintf("-%d", i+1)
			}
			c.Path = filepath.Join(FolderOf(ref), Folder, c.Name+Suffix)
			if err := found(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordedCalls returns the calls of a run that have ended, in the order of their ends. A call that was
// repeated stands as its last attempt made it.
func recordedCalls(ctx context.Context, db *starling.DB, id string) (ended []*recorded, err error) {
	calls := map[string]*recorded{}
	for ev, err := range db.Events(ctx, id) {
		if err != nil {
			return nil, err
		}
		payload, err := event.OfCall(ev)
		if err != nil {
			return nil, err
		}
		switch p := payload.(type) {
		case event.ToolCallScheduled:
			calls[p.CallID] = &recorded{tool: p.ToolName, args: p.Args, calls: calls}
		case event.SideEffectRecorded:
			if r := calls[p.CallID]; r != nil {
				r.effects = append(r.effects, p)
			}
		case event.ToolCallCompleted:
			if r := calls[p.CallID]; r != nil {
				r.result, r.fuel, ended = p.Result, p.Fuel, append(ended, r)
			}
		case event.ToolCallFailed:
			if r := calls[p.CallID]; r != nil && p.Final {
				r.outcome, r.fuel, ended = &starling.Failure{Type: p.ErrorType, Message: p.Error}, p.Fuel, append(ended, r)
			}
		}
	}
	return ended, nil
}

// Write writes the case to its file, and reports whether that changed it.
func (c *Case) Write() (changed bool, err error) {
	text := c.Format()
	if old, err := keyfile.ReadFile(c.Path, keyfile.MaxBytes); err == nil && bytes.Equal(old, text) {
		return false, nil
	}
	return true, cmp.Or(os.MkdirAll(filepath.Dir(c.Path), 0o755), keyfile.Replace(c.Path, text, 0o644))
}

// FolderOf returns the folder of a tool: itself, or the one of its file.
func FolderOf(ref string) string {
	switch info, err := os.Stat(ref); {
	case err != nil:
		return "." // it is not a path
	case info.IsDir():
		return ref
	}
	return filepath.Dir(ref)
}

// pollEvery is how often the files of a tool are looked at.
const pollEvery = 200 * time.Millisecond

// Await returns when the files of a tool differ from a stamp, or ctx ends. It looks at most a tenth
// of the time.
func Await(ctx context.Context, ref string, before uint64) {
	for wait := pollEvery; ; {
		if await.Pause(ctx, wait); ctx.Err() != nil {
			return
		}
		began := time.Now()
		if Stamp(ref) != before {
			return
		}
		wait = max(pollEvery, 10*time.Since(began))
	}
}

// Stamp returns a number that changes with the files of a tool: of its folder, or its file and the cases
// beside it.
func Stamp(ref string) uint64 {
	if FolderOf(ref) == ref {
		return guest.Stamp(ref)
	}
	return guest.Stamp(ref, filepath.Join(FolderOf(ref), Folder))
}

// recorded is one call of a recorded run.
type recorded struct {
	tool    string
	outcome *starling.Failure // nil if the call completed

	args, result canon.Raw
	fuel         uint64
	effects      []event.SideEffectRecorded
	calls        map[string]*recorded // all of the run, by their ids
}

// record replaces what the case has recorded: effects, outcome and fuel. The failure is the text of a
// call that did not complete.
//
// The log has no secrets: a request has placeholders, and the responses were searched for what was
// sent. So a case has none either, unless the input or a server's data are secret.
func (c *Case) record(r *recorded, failure string) error {
	if r.outcome != nil {
		switch r.outcome.Type {
		case event.ErrorCancelled, event.ErrorTimeout, event.ErrorLost:
			return fmt.Errorf("the call was interrupted (%s), which no case can repeat", r.outcome.Type)
		}
	}
	c.Effects, c.Output, c.Error, c.Fuel = nil, nil, strings.TrimSpace(failure), around(r.fuel)
	for _, effect := range r.effects {
		e, err := newEffect(effect, r.calls)
		if err != nil {
			return err
		}
		if e != nil {
			c.Effects = append(c.Effects, *e)
		}
	}
	if r.outcome == nil && c.Error == "" { // an input that the schema refuses has neither
		output, err := canon.ToJSON(r.result)
		c.Output = output
		return err
	}
	return nil
}
