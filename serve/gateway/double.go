package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// Recording are the runs of a database that are one call each and have ended. Their answers stay there.
type Recording struct {
	db    *starling.DB
	name  string                         // of the database, in commands
	calls []recordedCall                 // the oldest first
	refs  map[string]event.ToolSchemaRef // the tools, as the newest run describes them
	shown []mcpsrv.Tool                  // those that a client may call
}

type recordedCall struct {
	run       eventlog.RunSummary
	tool      string
	arguments canon.Raw
}

// reads are the methods whose requests are recorded as calls of a tool, by what they read.
var reads = map[string]string{"resources": "resources/read", "prompts": "prompts/get"}

// NewRecording reads the calls of a database with a name, which must stay open. It warns of a run whose tenant was
// erased. The error is a [*starling.NotFoundError] if there is no call, or a run needs a key.
func NewRecording(ctx context.Context, log store.Database, name string, warn func(text string)) (*Recording, error) {
	r := &Recording{db: starling.Over(log, starling.Options{}), name: name, refs: map[string]event.ToolSchemaRef{}}
	runs, err := log.ListRuns(ctx)
	for _, run := range slices.Backward(runs) {
		if err == nil {
			err = r.add(ctx, log, run)
		}
		if errors.Is(err, event.ErrEncrypted) {
			if v, _ := r.db.Replay(ctx, run.RunID); !v.Erased {
				return nil, r.lacks("run "+run.RunID+" is encrypted", "pass the master key of its tenant: --key-file FILE")
			}
			warn(name + ": run " + run.RunID + " is left out: its tenant was erased")
			err = nil
		}
	}
	for _, tool := range r.with("") {
		if source := r.refs[tool].Source; source != mcptool.SourcePrefix+reads["resources"] && source != mcptool.SourcePrefix+reads["prompts"] {
			r.shown = append(r.shown, r.describe(ctx, r.refs[tool]))
		}
	}
	if err == nil && len(r.calls) == 0 {
		err = r.lacks("it has no recorded calls", "record some: "+display.Command("starling-host mcp --db", name)+" --server COMMAND")
	}
	return r, cmp.Or(err, ctx.Err())
}

// Close releases what has replayed runs. Call it when nothing is answered any more.
func (r *Recording) Close() { r.db.Close() }

func (r *Recording) lacks(what, advice string) error {
	return &starling.NotFoundError{What: "database", Name: r.name, Reason: what, Hint: advice}
}

// add adds a run that has ended, unless it is one of an agent.
func (r *Recording) add(ctx context.Context, log eventlog.Database, run eventlog.RunSummary) error {
	var started event.RunStarted
	for ev, err := range log.Events(ctx, run.RunID, 0) {
		if err == nil && ev.Seq == 1 {
			started, err = ev.AsRunStarted()
		}
		if err != nil || started.ModelID != "" || run.TerminalKind != event.KindRunCompleted && run.TerminalKind != event.KindRunFailed {
			return err
		}
		if ev.Kind == event.KindToolCallScheduled {
			return event.On(ev, func(p event.ToolCallScheduled) {
				r.calls = append(r.calls, recordedCall{run, p.ToolName, p.Args})
				for _, ref := range started.ToolSchemas {
					if ref.Name == p.ToolName {
						r.refs[ref.Name] = ref
					}
				}
			})
		}
	}
	return nil
}

// with returns the names of the tools with a source, or of all for none.
func (r *Recording) with(source string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.refs)), func(name string) bool { return source != "" && r.refs[name].Source != source })
}

// describe returns a recorded tool as a client sees it: a tool of a module as the module describes it, and others as
// the record does. It may have no description.
func (r *Recording) describe(ctx context.Context, ref event.ToolSchemaRef) mcpsrv.Tool {
	shown := mcpsrv.Tool{Name: ref.Name, InputSchema: json.RawMessage(cmp.Or(ref.Schema, `{"type":"object"}`))}
	if ref.Sandbox == nil {
		shown.Remote = true
		shown.Exact = canon.Join(map[string]json.RawMessage{"name": canon.Quote(ref.Name), "description": canon.Quote(ref.Description), "inputSchema": shown.InputSchema})
	} else if t, err := r.db.Load(ctx, fmt.Sprintf("%x", ref.Sandbox.Module), starling.ToolOptions{Name: cmp.Or(strings.TrimPrefix(ref.Source, tool.SourceExport), ref.Name)}); err == nil {
		defer t.Close()
		shown = mcpsrv.ToolOf(t.Describe(), len(ref.Sandbox.Allow) == 0 && ref.Sandbox.Policy == nil)
		shown.Name, shown.Idempotent = ref.Name, shown.Idempotent || shown.Closed
	}
	return shown
}

// recordedAnswer is how a call ended.
type recordedAnswer struct {
	span.Document
	result, refused json.RawMessage // as a server wrote them; nil without an answer of one
}

// answer reads how a call ended, of a run that is valid. To have the words of a server, it replays the run.
func (r *Recording) answer(ctx context.Context, c recordedCall) (a recordedAnswer, err error) {
	log, err := r.db.Log(ctx)
	if err == nil {
		a.Document, err = span.Read(ctx, log, c.run)
	}
	if err != nil {
		return a, err
	}
	if !strings.HasPrefix(r.refs[c.tool].Source, mcptool.SourcePrefix) {
		v, err := r.db.Validate(ctx, c.run.RunID)
		return a, cmp.Or(err, v.Err)
	}
	v, err := r.db.Replay(mcptool.For(ctx, &mcptool.Call{Answered: func(result, refused json.RawMessage) { a.result, a.refused = result, refused }}), c.run.RunID)
	if err == nil && !v.Identical() {
		err = errors.New(v.String())
	}
	return a, err
}

// Replay answers the calls that a recording has from there, in each session anew: a call that was recorded several
// times gets its answers in their order, and then the last one again. The tools get the others. Call Replay before
// the tools are served.
func (l *Tools) Replay(r *Recording) { l.recording = r }

// replayed answers a call as the next recorded one of a tool was answered, under the name of its run. Several tools are
// asked until one does not fail. It reports false if the tools get the call.
func (l *session) replayed(ctx context.Context, c mcpsrv.Call, tools []string) (result mcpsrv.Result, ok bool, err error) {
	if len(l.recording.calls) == 0 {
		return result, false, nil
	}
	input, err := step.ParseInput(c.Arguments, nil)
	if err != nil {
		return result, true, err
	}
	others, such := 0, canon.Raw(nil)
	for _, name := range tools {
		var same []recordedCall
		for _, recorded := range l.recording.calls {
			if recorded.tool == name && bytes.Equal(recorded.arguments, input.CBOR) {
				same = append(same, recorded)
			} else if recorded.tool == name {
				others, such = others+1, recorded.arguments
			}
		}
		if len(same) == 0 {
			continue
		}
		key := name + string(input.CBOR)
		l.mu.Lock()
		next := same[min(l.given[key], len(same)-1)]
		l.given[key]++
		l.mu.Unlock()
		a, err := l.recording.answer(ctx, next)
		if err != nil {
			return result, true, fmt.Errorf("%w: %s", mcpsrv.ErrHost, starling.PlainError(err))
		}
		result = mcpsrv.Result{RunID: a.RunID, Output: a.Result, Log: a.Log, Replay: "starling-host replay " + l.recording.name + " " + a.RunID}
		result.Answer, result.Refused, result.Remote = a.result, a.refused, len(a.result)+len(a.refused) > 0
		if a.Error == nil {
			return result, true, nil
		}
		result.Error = a.Tool + ": " + a.Error.Message
	}
	if result.RunID == "" && l.Len() > 0 {
		if err = l.settle(ctx, c.Name); err == nil {
			return result, false, nil
		}
		result.Error = err.Error()
	} else if result.RunID == "" {
		text, _ := canon.Render(such) // of none is none
		result.Error = fmt.Sprintf("%s has no recorded call of %s with these arguments, and %d with others, such as %.400s; hint: --live asks the tool itself", l.recording.name, strings.Join(tools, ", "), others, text)
	}
	return result, true, nil
}
