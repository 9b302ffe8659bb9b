// Package step is the determinism boundary. Everything that a run does not compute from its input
// passes through this package: it is recorded as an event, and a replay reads it from the record.
//
// # What code does here
//
// A run has a [Context], and the functions of this package find it in a context.Context: [Now],
// [Random] and [Seed] for time and randomness, [SideEffect] and [Do] for all other effects,
// [CallTool] and [CallTools] for tools, [LLMCall] for the model, and [Emit] for the events of the
// loop that drives the run. The same code runs live and in a replay, and cannot tell the
// difference.
//
//	c, _ := step.NewContext(step.Config{Log: log, RunID: event.NewID(), Tools: step.NewRegistry(t)})
//	ctx = step.WithContext(ctx, c)
//	step.Emit(ctx, c, event.KindRunStarted, started)
//	result, err := step.CallTool(ctx, step.ToolCall{TurnID: "1", Name: t.Name(), Args: args})
//
// In live mode an effect is performed and its result appended to the log. The code receives the
// decoded record, not the original, which may have more than the record. Failures are recorded too.
// Before anything leaves the host, all earlier events are made durable. So the log announces every
// external effect before it can happen.
//
// # How a replay is compared
//
// A replay performs and appends nothing. At each event, it builds the payload from the code's
// current behaviour, completes it with values that only the record has (results of effects,
// durations, generated ids), and compares its bytes with the recorded bytes. spec/replay.md is
// normative; in short:
//
// Every event belongs to a stream: a call's events to the stream of that call, the first scheduling
// of a call to the stream of its parent, and all other events to the run's. Each stream is matched
// strictly in order. So tools that ran in parallel replay one after another, without goroutines,
// for any interleaving. Across streams causality is checked: a call acts after it was scheduled,
// and its caller continues after all events of the call. [Context.Finish] checks that everything
// recorded was matched.
//
// The first difference is a [*MismatchError], and it is final: from then on [Context.Err] returns
// it and every other function here fails with it. It never becomes the failure of a tool, even if
// the tool handles the error. A recording without a terminal event, as a crash leaves it, is
// matched to its end, and the replay ends with [ErrRecordingEnded], which is not a difference.
//
// # Interruptions
//
// Deadlines and cancellations come from outside, so their moment is recorded: for a sandboxed tool
// as the value of its fuel counter ([Attempt.RecordedStop]), for a native tool as the last event of the
// attempt. The wait before another attempt is recorded with the failure, and a replay does not
// wait.
//
// # Goroutines
//
// Everything here may be called from any goroutine. But a replay of a call knows only the recorded
// order. If a tool uses this package from several goroutines at the same time, it can be recorded,
// but its replay will report a difference. Use [CallTools] for concurrency that replays. A
// goroutine that outlives its call gets [ErrEnded]. Now, Random and Seed cannot return an error and
// panic instead; a tool must recover that panic in its own goroutines.
package step
