// Package event defines an event: its envelope, its kind, its payload and the
// bytes of all three.
//
// A run is a list of events. An [Event] is an envelope of six fields: the run, the
// number within the run, the hash of the event before, the time, the kind, and the
// payload, which is the encoding of the kind's struct. [RunStarted] is the first
// event of every run, [RunCompleted], [RunFailed] or [RunCancelled] the last. The
// events in between record what happened; the most important is
// [SideEffectRecorded]: one effect and its result.
//
// The bytes follow the Starling format. This project adds only optional fields, so
// that the same programs can read its logs and the Starling runtime's. The
// normative text is spec/event.md.
//
// # A worked example
//
// The first event of run "r", at two nanoseconds past the epoch, would be
// this envelope if [UserMessageAppended] were allowed there:
//
//	a6                                    map of 6, keys in the order of their bytes
//	   62 74 73              02           "ts": 2
//	   63 73 65 71           01           "seq": 1
//	   64 6b 69 6e 64        02           "kind": 2
//	   66 72 75 6e 5f 69 64  61 72        "run_id": "r"
//	   67 70 61 79 6c 6f 61 64            "payload":
//	      a1                                 map of 1
//	         67 63 6f 6e 74 65 6e 74  62 68 69   "content": "hi"
//	   69 70 72 65 76 5f 68 61 73 68  f6  "prev_hash": null
//
// Its hash, BLAKE3-256 of these 56 bytes, is the prev_hash of the event after
// it. The payload is a part of the map, not a byte string inside it, so one
// canonical form covers both.
//
// # How to use it
//
// A writer encodes a struct with [EncodePayload] and puts it into an Event; [AppendEnvelope] and
// [Event.Hash] are the fast path of a log, and [Marshal] does the same with a check. A reader
// decodes with [Unmarshal], looks at the kind, and calls the accessor of that kind. [ToJSON]
// produces the line of an export, and [Diff] finds the difference of two payloads.
//
// # What it refuses
//
// An envelope has one spelling, and [Unmarshal] accepts nothing else. A payload that could not be
// read back is not encoded. Package eventlog checks whether the events of a run belong together.
package event
