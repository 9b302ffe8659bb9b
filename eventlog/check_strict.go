package eventlog

import (
	"bytes"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// strictEvent checks the rules of strict mode that concern one event alone.
func strictEvent(e event.Event, first bool) error {
	if err := strictEnvelope(e, first); err != nil {
		return err
	}
	if err := canon.Valid(e.Payload); err != nil {
		return corrupt(e, "S2", "the payload is not canonical: %v", err)
	}
	return exactShape(e)
}

// strictEnvelope checks the rules that do not look into the payload.
func strictEnvelope(e event.Event, first bool) error {
	switch {
	case !e.Kind.Valid():
		return corrupt(e, "S1", "kind %d is not in the closed set", uint8(e.Kind))
	case e.Kind == event.KindRunStarted && !first:
		return corrupt(e, "S3", "a second RunStarted")
	case len(e.RunID) > MaxRunIDBytes:
		return corrupt(e, "S6", "the run id has %d bytes; at most %d are allowed", len(e.RunID), MaxRunIDBytes)
	case len(e.Payload) > MaxPayloadBytes:
		return corrupt(e, "S6", "the payload has %d bytes; at most %d are allowed", len(e.Payload), MaxPayloadBytes)
	}
	return nil
}

// exactShape decodes a payload into its struct and encodes it again. Whatever
// the struct does not know, or the payload lacks, makes a difference of bytes.
func exactShape(e event.Event) error {
	want, err := shapes[e.Kind](e)
	if err != nil {
		return corrupt(e, "S2", "the payload does not decode: %v", err)
	}
	if bytes.Equal(want, e.Payload) {
		return nil
	}
	field, w, h, _ := event.Diff(want, e.Payload)
	return corrupt(e, "S2", "the payload has not the shape of its kind: %s is %s where %s is expected", field, h, w)
}

// shapes has the struct of every kind.
var shapes = map[event.Kind]func(event.Event) (canon.Raw, error){
	event.KindRunStarted:                reencode[event.RunStarted],
	event.KindUserMessageAppended:       reencode[event.UserMessageAppended],
	event.KindTurnStarted:               reencode[event.TurnStarted],
	event.KindReasoningEmitted:          reencode[event.ReasoningEmitted],
	event.KindAssistantMessageCompleted: reencode[event.AssistantMessageCompleted],
	event.KindToolCallScheduled:         reencode[event.ToolCallScheduled],
	event.KindToolCallCompleted:         reencode[event.ToolCallCompleted],
	event.KindToolCallFailed:            reencode[event.ToolCallFailed],
	event.KindSideEffectRecorded:        reencode[event.SideEffectRecorded],
	event.KindBudgetExceeded:            reencode[event.BudgetExceeded],
	event.KindContextTruncated:          reencode[event.ContextTruncated],
	event.KindRunCompleted:              reencode[event.RunCompleted],
	event.KindRunFailed:                 reencode[event.RunFailed],
	event.KindRunCancelled:              reencode[event.RunCancelled],
	event.KindRunResumed:                reencode[event.RunResumed],
	event.KindTurnFailed:                reencode[event.TurnFailed],
}

func reencode[T event.Payload](e event.Event) (canon.Raw, error) {
	p, err := event.Decode[T](e)
	if err != nil {
		return nil, err
	}
	return event.EncodePayload(p)
}
