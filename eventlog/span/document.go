package span

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"iter"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// Document is a run as JSON. The command, the HTTP API, MCP and the Go library describe a run with
// these members. What only its events have is absent where they were not read.
type Document struct {
	eventlog.RunSummary
	Status     string          `json:"status"`
	Waiting    bool            `json:"waiting,omitempty"`   // only its beginning is recorded
	Encrypted  bool            `json:"encrypted,omitempty"` // the reader has no key for its payloads
	Partly     bool            `json:"partly,omitempty"`    // not all of its events were read: its figures are too low
	Goal       string          `json:"goal,omitempty"`      // of an agent
	Model      string          `json:"model,omitempty"`
	Tool       string          `json:"tool,omitempty"`      // of a run that is one call
	Module     string          `json:"module,omitempty"`    // the digest of its module
	Arguments  string          `json:"arguments,omitempty"` // of that call as JSON, or their beginning
	Result     json.RawMessage `json:"result,omitempty"`    // of that call
	FinalText  string          `json:"final_text,omitempty"`
	StopReason string          `json:"stop_reason,omitempty"` // of the model's last answer, in the provider's own word
	Error      *Failure        `json:"error,omitempty"`
	Requests   int             `json:"http_requests,omitempty"`
	Status4xx  int             `json:"http_4xx,omitempty"`
	Status5xx  int             `json:"http_5xx,omitempty"`
	Meter      Meter           `json:"meter,omitzero"`
	Log        string          `json:"log,omitempty"`
	MerkleRoot string          `json:"merkle_root,omitempty"` // in hexadecimal
}

// Failure is why a run did not complete.
type Failure struct {
	Type    string `json:"type"` // such as event.ErrorTool or event.ErrorFuel
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"` // see [Run.Reason]
	Call    string `json:"call,omitempty"`   // whose failure it was, see [Span.CallName]
	Seq     uint64 `json:"seq,omitempty"`    // of the event with that failure
}

// Meter is what the tools of a run used.
type Meter struct {
	Fuel            uint64 `json:"fuel"`
	PeakMemoryBytes uint64 `json:"peak_memory_bytes"`
	Effects         int    `json:"effects"`   // host calls: readings of the clock, draws, requests
	BytesIn         int    `json:"bytes_in"`  // of encoded values that effects returned
	BytesOut        int    `json:"bytes_out"` // of the requests that effects sent
}

// Summarize returns the document of a run whose events were not read.
func Summarize(s eventlog.RunSummary) Document {
	s.StartedAt = s.StartedAt.UTC()
	return Document{RunSummary: s, Status: s.Status(), Waiting: s.TerminalKind == 0 && s.LastSeq == 1}
}

// Read returns the document of a run with its result and its log, of the events that the summary counts.
func Read(ctx context.Context, log interface {
	Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error]
}, s eventlog.RunSummary) (Document, error) {
	b := Builder{Whole: true}
	for ev, err := range log.Events(ctx, s.RunID, 0) {
		if err == nil && ev.Seq > s.LastSeq {
			break
		}
		if err == nil {
			err = b.Add(ev)
		}
		if err != nil {
			return Document{}, err
		}
	}
	return b.Run().Document(s), nil
}

// Document returns the document of the run, which has this summary.
func (r *Run) Document(s eventlog.RunSummary) Document {
	doc := Summarize(s)
	doc.Encrypted, doc.Model, doc.Module, doc.StopReason = r.Encrypted, r.Model, r.Module, r.StopReason
	doc.Requests, doc.Status4xx, doc.Status5xx = r.Requests, r.Status4xx, r.Status5xx
	doc.Meter, doc.FinalText, doc.Log, doc.MerkleRoot = r.Meter, r.FinalText, r.Log, hex.EncodeToString(r.MerkleRoot)
	if r.Model != "" {
		doc.Goal = r.Goal
	} else {
		doc.Tool = r.Goal
		if len(r.Spans) > 0 && r.Spans[0].Kind == Call {
			doc.Arguments = r.Spans[0].Input
		}
		if json.Valid([]byte(r.FinalText)) { // a log may claim anything
			doc.Result, doc.FinalText = json.RawMessage(r.FinalText), ""
		}
	}
	if r.State == Open || r.State == OK {
		return doc
	}
	tool, why := r.Reason()
	if tool != "" && tool != doc.Tool {
		why = tool + ": " + why
	}
	doc.Error = &Failure{Type: r.ErrorType, Message: r.Error, Reason: why}
	if r.Cause != None {
		cause := &r.Spans[r.Cause]
		if doc.Error.Seq = cause.Last; cause.Kind == Call {
			doc.Error.Call = cause.CallName()
		}
	}
	return doc
}

// Map replaces the texts of the document that a stranger may have written, but for its result, final
// text and log.
func (d *Document) Map(to func(string) string) {
	texts := []*string{&d.Goal, &d.Model, &d.Tool, &d.Arguments, &d.StopReason}
	if d.Error != nil {
		failure := *d.Error
		d.Error = &failure
		texts = append(texts, &failure.Type, &failure.Message, &failure.Reason, &failure.Call)
	}
	for _, text := range texts {
		*text = to(*text)
	}
}
