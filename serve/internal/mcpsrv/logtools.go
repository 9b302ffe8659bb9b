package mcpsrv

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
)

// logTools are the tools over a log. Their view comes with the context, so that
// they are made once.
var logTools = sync.OnceValue(func() []tool.Tool {
	return []tool.Tool{
		tool.Typed("list_runs", "Find recorded runs, the newest first, with what they call, their state, size, usage and error. Failed runs are also counted by their reason.", onView(listRuns)),
		tool.Typed("get_run", "One run: why it failed, its state and totals, and its events from one number on, each with the call that it belongs to, when it came and how long it took, and its payload if that is short.", onView(getRun)),
		tool.Typed("get_event", "One event of a run, with its hash and its whole payload.", onView(getEvent)),
		tool.Typed("summarize_run", "Why a run failed, its goal and usage, and each attempt of its calls: who made it, when, how long, its HTTP requests with their status, its error and the wait after it. Start here.", onView(summarizeRun)),
		tool.Typed("validate_run", "Check the hash chain, the Merkle root and the invariants of a run. Nothing is executed.", onView(validateRun)),
		tool.Typed("diff_runs", "Align two runs by their calls (tool, arguments, order) and say where they first differ.", onView(diffRuns)),
		tool.Typed("search_runs", "Find events by a text in their payload or by kind. Query or kind is required.", onView(searchRuns)),
		tool.Typed(getReceiptName, "The signed receipts of the calls of a run that has ended: DSSE envelopes with in-toto statements.", onView(getReceipts)),
	}
})

// viewKey is the context key of a call's view.
type viewKey struct{}

// onView gives a function of a view the form of a tool's function.
func onView[In, Out any](fn func(context.Context, eventview.View, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		v, _ := ctx.Value(viewKey{}).(eventview.View)
		return fn(ctx, v, in)
	}
}

// copies is how often an answer has the output of a tool at most: as text, with its escapes, as JSON,
// and in the message that is sent.
const copies = 6

// maxTime bounds one call of a tool over a log.
const maxTime = 30 * time.Second

// addLogTools presents the tools over a log.
func addLogTools(server *mcp.Server, v eventview.View, log *slog.Logger) {
	open := false
	for _, t := range logTools() {
		if t.Name() == getReceiptName && v.Issuer == nil {
			continue
		}
		presented := &mcp.Tool{
			Name: t.Name(), Description: t.Description(), InputSchema: t.Schema(),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &open},
		}
		server.AddTool(presented, func(asked context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ctx, cancel := context.WithTimeout(asked, maxTime)
			defer cancel()
			if connected, ok := asked.Value(connectedKey{}).(context.Context); ok { // a call of a tool continues without its client; a read would be useless
				defer context.AfterFunc(connected, cancel)()
			}
			ctx, end := share.Fork(ctx) // a batch has several calls at once
			defer end()
			output, err := t.Execute(context.WithValue(ctx, viewKey{}, v), arguments(r))
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, ctx.Err() // there is no response
			} else if err != nil {
				return failed(explain(ctx, log, t.Name(), err)), nil
			}
			output = display.PrintableJSON(output)
			if err := share.Of(asked).Cover(copies * int64(len(output))); err != nil { // until the end of the request, which the fork does not reach
				return failed(explain(ctx, log, t.Name(), err)), nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(output)}}, StructuredContent: output}, nil
		})
	}
}

// explain returns the client's text for an error. A missing run and another tenant's
// run read the same.
func explain(ctx context.Context, log *slog.Logger, name string, err error) string {
	var mistake *mistake
	kind, _ := tool.KindOf(err)
	unreadable := eventview.Unreadable(err)
	switch {
	case unreadable != "":
		return unreadable
	case kind == abi.ErrorDiscard, errors.As(err, &mistake), errors.Is(err, eventlog.ErrLogCorrupt), errors.Is(err, event.ErrEncrypted),
		errors.Is(err, eventlog.ErrSchemaOutdated), errors.Is(err, eventlog.ErrSchemaTooNew):
		return display.PrintableError(err)
	case errors.Is(err, eventlog.ErrRunNotFound):
		return "run not found"
	case errors.Is(err, receipt.ErrOpen):
		return "the run has not ended, and has no receipts yet"
	case errors.Is(err, eventview.ErrEventNotFound):
		return "the run has no event of that number"
	case errors.Is(err, share.ErrBusy):
		return "the host is busy with other requests: ask again in a moment"
	case errors.Is(err, context.DeadlineExceeded):
		return "it takes too long: ask for less"
	}
	log.ErrorContext(ctx, "mcpsrv: tool failed", "tool", name, "error", err)
	return "the log could not be read"
}

// mistake is an error in the arguments that a schema does not catch.
type mistake struct{ text string }

func (m *mistake) Error() string { return m.text }

// getReceiptName is the tool that is there only if a key signs receipts.
const getReceiptName = "get_receipt"

type receiptArgs struct {
	RunID  string `json:"run_id" jsonschema:"minLength=1"`
	CallID string `json:"call_id,omitempty" jsonschema:"description=Only the receipt of this call"`
}

type receiptList struct {
	Receipts []*receipt.Receipt `json:"receipts"` // in the order in which the calls began
}

func getReceipts(ctx context.Context, v eventview.View, in receiptArgs) (receiptList, error) {
	all, err := v.Receipts(ctx, in.RunID)
	if err != nil || in.CallID == "" {
		return receiptList{all}, err
	}
	one := receipt.OfCall(all, in.CallID)
	if one == nil {
		return receiptList{}, &mistake{"call_id: the run has no such call"}
	}
	return receiptList{[]*receipt.Receipt{one}}, nil
}

type diffArgs struct {
	A     string `json:"a" jsonschema:"minLength=1,description=Id of the first run"`
	B     string `json:"b" jsonschema:"minLength=1,description=Id of the second run"`
	From  int    `json:"from" jsonschema:"default=1,minimum=1,description=List differences from this position of the alignment on"`
	Limit int    `json:"limit" jsonschema:"default=50,minimum=1,maximum=200,description=Differences at most"`

	Matches bool `json:"matches,omitempty" jsonschema:"description=List events that match as well"`
}

type runDiff struct {
	Same            bool        `json:"same"`
	FirstDivergence uint64      `json:"first_divergence,omitempty"` // number of the event, in the first run if it has one
	FirstCall       string      `json:"first_call,omitempty"`       // that the event belongs to
	Match           int         `json:"match"`
	Diff            int         `json:"diff"`
	OnlyA           int         `json:"only_a"`
	OnlyB           int         `json:"only_b"`
	Differences     []eventDiff `json:"differences"`      // and matches, if they are asked for
	Next            int         `json:"next,omitempty"`   // the value of from for those that follow
	Capped          bool        `json:"capped,omitempty"` // the runs are longer than the compared part
}

type eventDiff struct {
	Position int    `json:"position"`
	Call     string `json:"call,omitempty"` // that the events belong to, with its number in its run
	SeqA     uint64 `json:"seq_a,omitempty"`
	SeqB     uint64 `json:"seq_b,omitempty"`
	Relation string `json:"relation"` // match, diff, only-a or only-b
	A        string `json:"a,omitempty"`
	B        string `json:"b,omitempty"`
	Field    string `json:"field,omitempty"`
	InA      string `json:"in_a,omitempty"`
	InB      string `json:"in_b,omitempty"`
}

func diffRuns(ctx context.Context, v eventview.View, in diffArgs) (runDiff, error) {
	c, err := v.Compare(ctx, in.A, in.B, eventview.DiffOptions{From: in.From, Limit: in.Limit, DifferentOnly: !in.Matches})
	if err != nil {
		return runDiff{}, err
	}
	return runDiff{Same: c.First.Position == 0 && !c.Capped, FirstDivergence: c.First.Seq(), FirstCall: oneLine(c.First.Call), Next: c.Next, Match: c.Match, Diff: c.Diff,
		OnlyA: c.OnlyA, OnlyB: c.OnlyB, Differences: lists.Map(c.Pairs, newEventDiff), Capped: c.Capped}, nil
}

func newEventDiff(pair eventview.Pair) eventDiff {
	side := func(ev event.Event) string {
		if ev.Seq == 0 {
			return ""
		}
		return ev.Kind.String() + ": " + newEventInfo(ev, 0).Facts
	}
	return eventDiff{Position: pair.Position, Call: oneLine(pair.Call), SeqA: pair.A.Seq, SeqB: pair.B.Seq, Relation: string(pair.Relation), A: side(pair.A), B: side(pair.B),
		Field: oneLine(pair.Field), InA: oneLine(pair.InA), InB: oneLine(pair.InB)}
}

type searchArgs struct {
	Query     string `json:"query,omitempty" jsonschema:"maxLength=500,description=Text that the payload contains as JSON; ASCII letters in any case"`
	Kind      string `json:"kind,omitempty" jsonschema:"description=Kind of the event such as ToolCallFailed"`
	Status    string `json:"status,omitempty" jsonschema:"enum=completed,enum=failed,enum=cancelled,enum=open,description=Only in runs in this state"`
	Limit     int    `json:"limit" jsonschema:"default=50,minimum=1,maximum=500,description=Events to list at most"`
	RunLimit  int    `json:"run_limit" jsonschema:"default=200,minimum=1,maximum=1000,description=Runs to look into - the newest first"`
	RunOffset int    `json:"run_offset" jsonschema:"default=0,minimum=0,description=Runs to leave out - the newest ones"`
	MaxEvents int    `json:"max_examined_events" jsonschema:"default=10000,minimum=1,maximum=50000,description=Events to look at"`
}

type searchResult struct {
	Matches           []match `json:"matches"`
	RunsExamined      int     `json:"runs_examined"`
	EventsExamined    int     `json:"events_examined"`
	RunsUnreadable    int     `json:"runs_unreadable,omitempty"` // of those examined; validate_run has the reason
	TotalMatchingRuns int     `json:"total_matching_runs"`       // runs in that state, examined or not
	RunsCapped        bool    `json:"runs_capped"`               // run_limit left out older ones: more with run_offset
	ScanCapped        bool    `json:"scan_capped"`               // max_examined_events left out events
	Capped            bool    `json:"capped"`                    // limit left out matches
}

type match struct {
	RunID string `json:"run_id"`
	eventInfo
}

func searchRuns(ctx context.Context, v eventview.View, in searchArgs) (searchResult, error) {
	wants, err := wanted(in)
	if err != nil {
		return searchResult{}, err
	}
	page, err := v.Runs(ctx, eventlog.RunPageOptions{Limit: in.RunLimit, Offset: in.RunOffset, Status: in.Status})
	if err != nil {
		return searchResult{}, err
	}
	out := searchResult{Matches: []match{}, TotalMatchingRuns: page.TotalMatching, RunsCapped: page.TotalMatching > in.RunOffset+len(page.Runs)}
	for _, run := range page.Runs {
		if out.ScanCapped || out.Capped {
			break
		}
		err := out.search(ctx, v, run.RunID, in, wants)
		switch {
		case errors.Is(err, eventlog.ErrLogCorrupt), eventview.Unreadable(err) != "": // which does not concern the others
			out.RunsUnreadable++
		case err != nil:
			return searchResult{}, err
		}
	}
	return out, nil
}

// search adds the matches in one run.
func (r *searchResult) search(ctx context.Context, v eventview.View, id string, in searchArgs, wants func(event.Event) bool) error {
	r.RunsExamined++
	for ev, err := range v.Events(ctx, id, 0) {
		if err != nil {
			return err
		}
		if r.EventsExamined == in.MaxEvents {
			r.ScanCapped = true
			return nil
		}
		r.EventsExamined++
		if !wants(ev) {
			continue
		}
		if len(r.Matches) == in.Limit {
			r.Capped = true
			return nil
		}
		r.Matches = append(r.Matches, match{id, newEventInfo(ev, 0)})
	}
	return nil
}

// wanted returns whether an event meets the criteria of a search.
func wanted(in searchArgs) (func(ev event.Event) bool, error) {
	kind := event.KindNamed(in.Kind)
	switch {
	case in.Kind == "" && in.Query == "":
		return nil, &mistake{"query or kind is required"}
	case in.Kind != "" && !kind.Valid():
		return nil, &mistake{"unknown kind; a valid one is ToolCallFailed"}
	}
	query := eventlog.LowerASCII(in.Query)
	return func(ev event.Event) bool {
		if in.Kind != "" && ev.Kind != kind || query == "" {
			return ev.Kind == kind
		}
		doc, err := canon.Render(ev.Payload)
		return err == nil && strings.Contains(eventlog.LowerASCII(string(doc)), query)
	}, nil
}
