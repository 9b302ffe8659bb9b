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
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
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
	shown.Brief = true
	return shown
}

// recordedAnswer is how a call ended.
type recordedAnswer struct {
	span.Document
	result, refused json.RawMessage                              // as a server wrote them; nil without an answer of one
	replies         map[string][]func() (json.RawMessage, error) // of the client to the server's questions, by their methods
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
	a.replies = map[string][]func() (json.RawMessage, error){}
	v, err := r.db.Replay(mcptool.For(ctx, &mcptool.Call{
		Answered: func(result, refused json.RawMessage) { a.result, a.refused = result, refused },
		Replied: func(method string, result json.RawMessage, refused error) {
			a.replies[method] = append(a.replies[method], func() (json.RawMessage, error) { return result, refused })
		},
	}), c.run.RunID)
	if err == nil && !v.Identical() {
		err = errors.New(v.String())
	}
	return a, err
}

// ask answers a question of the server as its client did.
func (a *recordedAnswer) ask(_ context.Context, _, method string, _ json.RawMessage) (json.RawMessage, error) {
	left := a.replies[method]
	if len(left) == 0 {
		return nil, mcptool.ErrNoMethod
	}
	a.replies[method] = left[1:]
	return left[0]()
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

// Verification compares a server with a recording of another version, as DiffRuns compares modules.
type Verification struct {
	Same    bool                   `json:"same"`
	Changes []starling.Change      `json:"changes"` // of the called tools
	Runs    starling.RunDifference `json:"runs"`    // skipped are those whose calls were not sent
	Others  []string               `json:"others"`  // the server's tools without a recorded call
}

// Verify sends the recorded calls of a server, whose tools have its name as prefix, to another version of it, in
// their order, and compares the answers as they were sent. It records nothing. The server's questions get the recorded
// replies. It skips calls without a recorded answer and, unless all is set, those of tools that the server does not
// declare as reading, or as idempotent and not destructive. The error is a [*starling.NotFoundError] if there is no
// such call.
func (r *Recording) Verify(ctx context.Context, s Server, all bool) (*Verification, error) {
	others := func(name string) bool {
		return !strings.HasPrefix(name, s.Name+"_") || !strings.HasPrefix(r.refs[name].Source, mcptool.SourcePrefix)
	}
	calls := slices.DeleteFunc(slices.Clone(r.calls), func(c recordedCall) bool { return others(c.tool) })
	if len(calls) == 0 {
		return nil, r.lacks("it has no recorded call of a server's tool "+s.Name+"_...", "name the server as it was recorded: --server NAME=COMMAND; the recorded calls: "+display.Command("starling-host runs", r.name))
	}
	client, able := &mcptool.Assistant{Version: "2025-11-25"}, map[string]json.RawMessage{} // a server behaves as its client's version and abilities are
	for _, c := range calls {
		a, err := r.answer(ctx, c)
		if err != nil {
			return nil, err
		}
		if canon.Split(a.result)["resultType"] != nil {
			client.Version = "" // a later one
		}
		for method := range a.replies {
			what, _, _ := strings.Cut(method, "/")
			able[what] = json.RawMessage(`{"form":{},"url":{}}`) // of elicitation
		}
	}
	pins, _ := DefaultPins() // beside its tokens, of which a user without a folder has none
	db := starling.Over(nil, starling.Options{})
	defer db.Close()
	o := starling.ServerOptions{MCP: s.config(pins)}
	client.Capabilities = canon.Join(able)
	o.Timeout, o.Assistant = (&Tools{}).patience(s), client
	connected, err := db.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	v := &Verification{Runs: starling.RunDifference{Differ: []agent.ReplayDocument{}}, Others: []string{}}
	listed := func() map[string]*starling.Tool { // a server may list more once it knows its client
		tools := map[string]*starling.Tool{}
		for _, t := range connected.Tools() {
			tools[t.Name()] = t
		}
		for what, method := range reads {
			if t := connected.Method(method); connected.Offers(what) {
				tools[t.Name()] = t
			}
		}
		return tools
	}
	for _, c := range calls {
		if err := r.compare(ctx, v, c, listed()[c.tool], all); err != nil {
			return nil, err
		}
	}
	tools := listed()
	for _, t := range connected.Tools() {
		if r.refs[t.Name()].Name == "" {
			v.Others = append(v.Others, t.Name())
		}
	}
	var before, now starling.ModuleDocument
	for _, name := range slices.DeleteFunc(r.with(""), others) {
		before.Tools = append(before.Tools, guest.ToolDocument{Name: name, Description: r.refs[name].Description, InputSchema: []byte(r.refs[name].Schema)})
		if t := tools[name]; t != nil {
			now.Tools = append(now.Tools, guest.ToolDocument{Name: name, Description: t.Description(), InputSchema: []byte(t.Schema())})
		}
	}
	v.Changes = before.Changes(now)
	v.Same = len(v.Changes)+len(v.Runs.Differ) == 0
	return v, nil
}

// compare makes a recorded call again, and adds how the answers compare. The tool is nil if the server lacks it.
func (r *Recording) compare(ctx context.Context, v *Verification, c recordedCall, t *starling.Tool, all bool) error {
	a, err := r.answer(ctx, c)
	arguments, bad := canon.DocOf(c.arguments)
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	if t == nil || len(a.result)+len(a.refused) == 0 || !all && !harmless(t) {
		v.Runs.Skipped++
		return nil
	}
	var got canon.Raw
	again := mcptool.For(ctx, &mcptool.Call{Ask: a.ask, Answered: func(answer, refused json.RawMessage) { got = comparable(answer, refused) }})
	made, err := agent.Direct{Log: store.Memory(), Tool: t.Tool, Input: arguments}.Run(again, nil)
	if err != nil || ctx.Err() != nil {
		return cmp.Or(ctx.Err(), err)
	}
	if got == nil {
		got = comparable(nil, canon.Quote(made.Error))
	}
	const kind = event.KindSideEffectRecorded // before the ends of the call and of the run
	d := step.MismatchError{Seq: a.LastSeq - 2, Kind: kind, ExpectedKind: kind, Class: step.MismatchPayload, Reason: "another answer to " + c.tool + " " + display.Clip(string(arguments.JSON), 400)}
	same := false
	if d.Field, d.Expected, d.Got, same = event.Diff(comparable(a.result, a.refused), got); same {
		v.Runs.Same++
		return nil
	}
	d.Expected, d.Got, _ = display.AroundDifference(d.Expected, d.Got)
	verdict := starling.Verdict{RunID: a.RunID, Verdict: agent.Verdict{Events: int(a.LastSeq), Divergence: &agent.Divergence{RunID: a.RunID, MismatchError: d}}}
	v.Runs.Verdicts, v.Runs.Differ = append(v.Runs.Verdicts, verdict), append(v.Runs.Differ, verdict.Document())
	return nil
}

// harmless reports whether the server declares that another call of a tool changes nothing, as the protocol does of reads.
func harmless(t *starling.Tool) bool {
	d, _ := t.Definition()
	var hints map[string]any
	_ = json.Unmarshal(d.Hints, &hints) // without them it declares nothing
	return d.Schema == nil || hints["readOnlyHint"] == true || hints["idempotentHint"] == true && hints["destructiveHint"] == false
}

// comparable returns an answer without what each connection, or each run of a host behind this one, has otherwise.
func comparable(result, refused json.RawMessage) canon.Raw {
	members := canon.Split(result)
	if len(refused) > 0 {
		members["error"] = refused
	}
	delete(members, "resultType")
	meta := canon.Split(members["_meta"])
	maps.DeleteFunc(meta, func(name string, _ json.RawMessage) bool {
		return mcpsrv.IsOurs(name) || strings.HasPrefix(name, "io.modelcontextprotocol/")
	})
	members["_meta"] = canon.Join(meta)
	doc, err := canon.Parse(canon.Join(members))
	if err != nil { // such as a number beyond all floats: then it is compared as a text
		doc, _ = canon.Parse(canon.Quote(string(canon.Join(members))))
	}
	return doc.CBOR
}
