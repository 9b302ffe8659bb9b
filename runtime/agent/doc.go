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
// A run that is recorded and a run that is replayed go through the same code.
// If the process dies, the log holds a prefix of these events, a run that is
// open; nothing of it was reported to anybody as done.
package agent
