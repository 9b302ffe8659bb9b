// Package agent drives runs: it decides the steps of a run, and writes its first and last
// events.
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
// The prompt is a function of the events before it (conversation.go). So any process can
// resume a run whose process died ([Agent.Resume]). RunResumed marks the seam, and a replay
// follows the run process by process. With a queue, one process opens runs
// ([Agent.Opening], [Direct.Opening]) and another makes them ([Agent.Continue],
// [Direct.Continue]).
//
// Recording and replay share one code path. If the process dies, the log holds a prefix of
// the events, an open run; none of its results was reported.
package agent
