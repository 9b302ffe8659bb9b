package eventlog

import (
	"bytes"
	"math"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// AggregateRun adds up a run: turns begun, tool calls scheduled (a call is
// counted once however often it is attempted), tokens and cost of the model's
// answers and of those that broke off, and the nanoseconds from the first event
// to the last. It is the one
// source of these figures for listings, servers and views. An event whose
// payload does not decode is skipped, because one broken row must not blank a
// whole page.
func AggregateRun(events []event.Event) (turns, tools int, inTok, outTok int64, cost float64, durNs int64) {
	var s RunSummary
	for _, e := range events {
		s.add(e)
	}
	if n := len(events); n > 0 {
		durNs = events[n-1].Timestamp - events[0].Timestamp
	}
	return s.TurnCount, s.ToolCallCount, s.InputTokens, s.OutputTokens, s.CostUSD, durNs
}

// add counts what one event contributes to the totals.
func (s *RunSummary) add(e event.Event) {
	switch e.Kind {
	case event.KindTurnStarted:
		s.TurnCount++
	case event.KindToolCallScheduled:
		var p callRef
		if canon.Unmarshal(e.Payload, &p) == nil && p.Attempt <= 1 {
			s.ToolCallCount++
		}
	case event.KindAssistantMessageCompleted:
		var p answerRef
		if canon.Unmarshal(e.Payload, &p) == nil {
			s.spend(p)
		}
	case event.KindSideEffectRecorded:
		if !bytes.HasPrefix(e.Payload[min(1, len(e.Payload)):], modelEffect) {
			return // every other effect, without decoding what may be large
		}
		p, err := e.AsSideEffectRecorded()
		if f, ok := p.ModelFailure(); err == nil && ok {
			s.spend(answerRef{f.InputTokens, f.OutputTokens, f.CostUSD})
		}
	}
}

func (s *RunSummary) spend(p answerRef) {
	s.InputTokens += p.InputTokens
	s.OutputTokens += p.OutputTokens
	s.CostUSD += finite(p.CostUSD)
}

// modelEffect follows the map's header in the payload of an [event.EffectModel]
// record: its first member in the canonical order.
var modelEffect = canon.AppendText(canon.AppendText(nil, "name"), event.EffectModel)

// finite keeps a NaN, which is unequal to itself, out of sums that are compared.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// answerRef is the part of an answer that is added up.
type answerRef struct {
	InputTokens  int64   `cbor:"input_tokens"`
	OutputTokens int64   `cbor:"output_tokens"`
	CostUSD      float64 `cbor:"cost_usd"`
}
