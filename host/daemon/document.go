package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/narrate"
	"github.com/starling-host/starling/host/queue"
)

// runLine is a run in a listing.
type runLine struct {
	RunID        string  `json:"run_id"`
	Status       string  `json:"status"`
	Waiting      bool    `json:"waiting,omitempty"` // nothing of it has been done
	StartedAt    string  `json:"started_at"`
	DurationMs   int64   `json:"duration_ms"`
	Events       uint64  `json:"events"`
	Turns        int     `json:"turns,omitempty"`
	ToolCalls    int     `json:"tool_calls"`
	InputTokens  int64   `json:"input_tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	CostUSD      float64 `json:"cost_usd,omitempty"`

	Job *queue.Standing `json:"job,omitempty"` // where it stands in the queue, until it ends
}

func newRunLine(s eventlog.RunSummary) runLine {
	return runLine{
		RunID: s.RunID, Status: s.Status(), Waiting: s.TerminalKind == 0 && s.LastSeq == 1,
		StartedAt: s.StartedAt.UTC().Format(time.RFC3339Nano), DurationMs: s.DurationMs, Events: s.LastSeq,
		Turns: s.TurnCount, ToolCalls: s.ToolCallCount, InputTokens: s.InputTokens, OutputTokens: s.OutputTokens, CostUSD: s.CostUSD,
	}
}

// runDocument is a run, with what came of it.
type runDocument struct {
	runLine
	Position   int             `json:"position,omitempty"` // among the tenant's runs that wait, 1 is next
	Goal       string          `json:"goal,omitempty"`
	Tool       string          `json:"tool,omitempty"`
	Module     string          `json:"module,omitempty"` // digest
	Output     json.RawMessage `json:"output,omitempty"` // of a tool
	FinalText  string          `json:"final_text,omitempty"`
	Error      *errorDocument  `json:"error,omitempty"`
	Meter      *meterDocument  `json:"meter,omitempty"`
	Log        string          `json:"log,omitempty"`
	MerkleRoot string          `json:"merkle_root,omitempty"`

	passed string // the bound of the budget that ended the run, and by how much
}

type errorDocument struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type meterDocument struct {
	Fuel            uint64 `json:"fuel"`
	PeakMemoryBytes uint64 `json:"peak_memory_bytes"`
	Effects         int    `json:"effects"`
}

// describeRun returns the document of a run as it is now: of the events, those that
// its summary has counted.
func describeRun(ctx context.Context, view logview.View, id string) (*runDocument, error) {
	s, err := view.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	doc := &runDocument{runLine: newRunLine(s)}
	for ev, err := range view.Events(ctx, id, 0) {
		if err == nil && ev.Seq > s.LastSeq {
			break
		}
		if err == nil {
			err = doc.add(ev)
		}
		if err != nil {
			return nil, err
		}
	}
	return doc, nil
}

// add takes in what one event says.
func (doc *runDocument) add(ev event.Event) error {
	switch ev.Kind {
	case event.KindRunStarted:
		return with(ev, doc.started)
	case event.KindSideEffectRecorded:
		return with(ev, func(p event.SideEffectRecorded) {
			if p.Crossed() {
				doc.meter().Effects++
			}
		})
	case event.KindToolCallCompleted:
		return with(ev, func(p event.ToolCallCompleted) { doc.used(p.Meter) })
	case event.KindToolCallFailed:
		return with(ev, func(p event.ToolCallFailed) { doc.used(p.Meter) })
	case event.KindRunCompleted:
		return with(ev, doc.completed)
	case event.KindBudgetExceeded:
		return with(ev, func(p event.BudgetExceeded) {
			doc.passed = ": " + narrate.Passed(p)
		})
	case event.KindRunFailed:
		return with(ev, doc.failed)
	case event.KindRunCancelled:
		return with(ev, func(p event.RunCancelled) {
			doc.Error, doc.MerkleRoot = &errorDocument{event.ErrorCancelled, p.Reason}, hex.EncodeToString(p.MerkleRoot)
		})
	}
	return nil
}

func with[P event.Payload](ev event.Event, take func(P)) error {
	p, err := event.Decode[P](ev)
	if err == nil {
		take(p)
	}
	return err
}

func (doc *runDocument) started(p event.RunStarted) {
	if p.ModelID != "" {
		doc.Goal = p.Goal
		return
	}
	doc.Tool = p.Goal
	if len(p.ToolSchemas) == 1 && p.ToolSchemas[0].Sandbox != nil {
		doc.Module = hex.EncodeToString(p.ToolSchemas[0].Sandbox.Module)
	}
}

// completed takes the end of a run: the result of a tool, which is JSON, or the
// answer of a model.
func (doc *runDocument) completed(p event.RunCompleted) {
	doc.MerkleRoot = hex.EncodeToString(p.MerkleRoot)
	if doc.Tool == "" {
		doc.FinalText = p.FinalText
		return
	}
	if clean, err := canon.JSON([]byte(p.FinalText)); err == nil {
		doc.Output = clean
	}
}

// failed takes an end that the run did not mean. Which bound of its budget it passed is
// in an event before.
func (doc *runDocument) failed(p event.RunFailed) {
	doc.Error, doc.MerkleRoot = &errorDocument{p.ErrorType, p.Error}, hex.EncodeToString(p.MerkleRoot)
	if p.ErrorType == event.ErrorBudget {
		doc.Error.Message += doc.passed
	}
}

func (doc *runDocument) meter() *meterDocument {
	if doc.Meter == nil {
		doc.Meter = &meterDocument{}
	}
	return doc.Meter
}

func (doc *runDocument) used(m event.Meter) {
	doc.meter().Fuel += m.Fuel
	doc.meter().PeakMemoryBytes = max(doc.meter().PeakMemoryBytes, m.PeakMemory)
	doc.Log += m.Log
}
