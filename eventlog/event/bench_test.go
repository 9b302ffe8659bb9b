package event_test

import (
	"bytes"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

func benchEvent() event.Event {
	value := canon.AppendBytes(nil, bytes.Repeat([]byte("x"), 200))
	payload, err := event.EncodePayload(event.SideEffectRecorded{Name: "GET https://example.com/", Value: value, CallID: callID})
	if err != nil {
		panic(err)
	}
	return event.Event{RunID: runID, Seq: 1000, PrevHash: sum("before"), Timestamp: ts, Kind: event.KindSideEffectRecorded, Payload: payload}
}

func BenchmarkAppendEnvelope(b *testing.B) {
	e := benchEvent()
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		event.AppendEnvelope(buf, e)
	}
}

func BenchmarkHash(b *testing.B) {
	e := benchEvent()
	b.ReportAllocs()
	for b.Loop() {
		e.Hash()
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	envelope := event.AppendEnvelope(nil, benchEvent())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.Unmarshal(envelope); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodePayload(b *testing.B) {
	p := event.SideEffectRecorded{Name: event.EffectNow, Value: canon.AppendInt(nil, ts), CallID: callID, Fuel: 1234}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.EncodePayload(p); err != nil {
			b.Fatal(err)
		}
	}
}
