// Package step is the determinism boundary: everything that a run does not
// compute from its input goes through this package, is recorded as an event, and
// is answered from the record when the run is replayed.
//
// # What code does here
//
// A run has a [Context], and the functions of this package find it in a
// context.Context: [Now], [Random] and [Seed] for time and randomness,
// [SideEffect] and [Do] for everything else that touches the world, [CallTool]
// and [CallTools] for tools, [LLMCall] for the model, [Emit] for the events of
// the loop that drives the run. The same code runs live and in a replay; it
// cannot tell which.
//
//	c, _ := step.NewContext(step.Config{Log: log, RunID: event.NewID(), Tools: step.NewRegistry(t)})
//	ctx = step.WithContext(ctx, c)
//	step.Emit(ctx, c, event.KindRunStarted, started)
//	result, err := step.CallTool(ctx, step.ToolCall{TurnID: "1", Name: t.Name(), Args: args})
//
// In live mode an effect happens, what it gave is appended to the log, and the
// code receives the decoded record: not the original, which may carry more than
// the record does. Failures are records too. Before anything leaves the host
// the log is made durable up to there, so whatever the process has done to the
// world, the log already says that it was about to.
//
// # How a replay is compared
//
// In a replay nothing happens and nothing is appended. At each event the code
// arrives at, the payload is built from what the code does now, completed with
// what only the record can know (values of effects, durations, minted ids), and
// its bytes are compared with the recorded bytes. spec/replay.md is normative;
// in short:
//
// Every event belongs to a stream: a call's events to the stream of that call,
// the first scheduling of a call to the stream of its parent, all else to the
// run's. Each stream is matched strictly in order. So tools that ran in parallel
// replay whatever their interleaving was, one after another, without goroutines.
// Across streams causality is checked: a call acts after it was scheduled, and
// its caller goes on after all that the call did. At the end everything recorded
// must have been matched, which [Context.Finish] checks.
//
// The first difference is a [*MismatchError] and it is final: [Context.Err]
// returns it from then on, everything else here fails with it, and it never
// turns into the failure of a tool, whatever the tool does with the error. A
// recording without a terminal event, left behind by a crash, is matched as far
// as it goes and then ends with [ErrRecordingEnded], which is no difference.
//
// # What the world decides
//
// A deadline and a cancellation come from outside, so their moment is recorded:
// for a sandboxed tool as the position of its fuel counter ([RecordedStop]), for
// a native tool as the last thing it did. How long is waited before another attempt
// is recorded with the failure, and a replay does not wait.
//
// # Goroutines
//
// Everything here may be called from any goroutine. But within one call a
// replay knows only one order, the recorded one: a tool that starts goroutines
// which use this package at the same time can be recorded, and will be reported
// as different when it is replayed. Concurrency that replays is [CallTools]. A
// goroutine that outlives its call gets [ErrEnded]. Now, Random and Seed have no
// error to return and panic; a tool must recover that panic in goroutines of its own.
package step
