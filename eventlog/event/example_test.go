package event_test

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// The worked example of the package comment.
func Example() {
	payload, err := event.EncodePayload(event.UserMessageAppended{Content: "hi"})
	if err != nil {
		fmt.Println(err)
	}
	e := event.Event{RunID: "r", Seq: 1, Timestamp: 2, Kind: event.KindUserMessageAppended, Payload: payload}
	envelope, err := event.Marshal(e)
	fmt.Printf("%d bytes, %v\n%x\n%s\n", len(envelope), err, envelope, e.Hash())
	// Output:
	// 56 bytes, <nil>
	// a6627473026373657101646b696e64026672756e5f69646172677061796c6f6164a167636f6e74656e7462686969707265765f68617368f6
	// ab25f5358ce88e42712a17cab7570d24aba080d89239d9ceca3573ad83e7e94e
}

func ExampleDecode() {
	payload, _ := event.EncodePayload(event.SideEffectRecorded{
		Name: event.EffectNow, Value: canon.AppendInt(nil, 1_700_000_000_000_000_000), CallID: "c1",
	})
	e := event.Event{RunID: "r", Seq: 3, Kind: event.KindSideEffectRecorded, Payload: payload}

	effect, err := event.Decode[event.SideEffectRecorded](e) // or e.AsSideEffectRecorded()
	fmt.Println(effect.Name, effect.CallID, err)

	_, err = e.AsRunStarted()
	fmt.Println(err)
	// Output:
	// now c1 <nil>
	// event: seq 3 of run "r" is SideEffectRecorded, not RunStarted
}

func ExampleDiff() {
	recorded, _ := event.EncodePayload(event.ToolCallCompleted{CallID: "c1", Result: canon.Raw("\xa1\x64city\x63Ulm"), Attempt: 1})
	replayed, _ := event.EncodePayload(event.ToolCallCompleted{CallID: "c1", Result: canon.Raw("\xa1\x64city\x63Uhm"), Attempt: 1})
	field, want, have, same := event.Diff(recorded, replayed)
	fmt.Println(same, field, want, have)
	// Output:
	// false result.city Ulm Uhm
}
