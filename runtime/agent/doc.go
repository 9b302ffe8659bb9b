// Package agent drives runs: it decides what a run does, and writes the events
// with which a run begins and ends.
//
// [Direct] is the smallest agent, one call of one tool:
//
//	RunStarted          goal: the tool's name; tool_schemas: its identity
//	ToolCallScheduled   turn_id "direct", attempt 1
//	SideEffectRecorded  any number, and whatever else the tool does
//	ToolCallCompleted   or ToolCallFailed
//	RunCompleted        final_text: the result as canonical JSON;
//	                    RunFailed with the type of the call's failure;
//	                    RunCancelled if the caller cancelled it
//
// An [Agent] lets a model work with tools until it answers:
//
//	RunStarted                 the goal, and everything that the model is told besides
//	TurnStarted                the hash of the prompt
//	ReasoningEmitted           one for each block of reasoning
//	AssistantMessageCompleted  the answer, and the calls that it asks for
//	ToolCallScheduled ...      the calls, at the same time; their outcomes, failures
//	                           included, are told to the model in the next turn
//	RunCompleted               or RunFailed: budget, max_turns or provider;
//	                           or RunCancelled
//
// What the model is told is a function of the events before (conversation.go). So
// a run whose process died is resumed from its log by any other one
// ([Agent.Resume]), RunResumed marks the seam, and such a run replays like any
// other: process by process. Where runs are handed to workers, one process opens
// them ([Agent.Opening], [Direct.Opening]) and another makes them
// ([Agent.Continue], [Direct.Continue]).
//
// A run that is recorded and a run that is replayed go through the same code.
// If the process dies, the log holds a prefix of these events, a run that is
// open; nothing of it was reported to anybody as done.
package agent
