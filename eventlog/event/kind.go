package event

import "fmt"

// Kind says what an event records. The set is closed: a new kind is a new
// schema version (spec/event.md).
type Kind uint8

// The sixteen kinds. ContextTruncated and TurnFailed are reserved: readers
// accept them, nothing here writes them.
const (
	KindRunStarted                Kind = 1
	KindUserMessageAppended       Kind = 2
	KindTurnStarted               Kind = 3
	KindReasoningEmitted          Kind = 4
	KindAssistantMessageCompleted Kind = 5
	KindToolCallScheduled         Kind = 6
	KindToolCallCompleted         Kind = 7
	KindToolCallFailed            Kind = 8
	KindSideEffectRecorded        Kind = 9
	KindBudgetExceeded            Kind = 10
	KindContextTruncated          Kind = 11
	KindRunCompleted              Kind = 12
	KindRunFailed                 Kind = 13
	KindRunCancelled              Kind = 14
	KindRunResumed                Kind = 15
	KindTurnFailed                Kind = 16
)

var kindNames = [...]string{
	KindRunStarted:                "RunStarted",
	KindUserMessageAppended:       "UserMessageAppended",
	KindTurnStarted:               "TurnStarted",
	KindReasoningEmitted:          "ReasoningEmitted",
	KindAssistantMessageCompleted: "AssistantMessageCompleted",
	KindToolCallScheduled:         "ToolCallScheduled",
	KindToolCallCompleted:         "ToolCallCompleted",
	KindToolCallFailed:            "ToolCallFailed",
	KindSideEffectRecorded:        "SideEffectRecorded",
	KindBudgetExceeded:            "BudgetExceeded",
	KindContextTruncated:          "ContextTruncated",
	KindRunCompleted:              "RunCompleted",
	KindRunFailed:                 "RunFailed",
	KindRunCancelled:              "RunCancelled",
	KindRunResumed:                "RunResumed",
	KindTurnFailed:                "TurnFailed",
}

// Valid reports whether k is one of the sixteen kinds.
func (k Kind) Valid() bool { return k >= KindRunStarted && k <= KindTurnFailed }

// Terminal reports whether k ends a run.
func (k Kind) Terminal() bool {
	return k == KindRunCompleted || k == KindRunFailed || k == KindRunCancelled
}

// String returns the name of spec/event.md, or "Kind(n)".
func (k Kind) String() string {
	if k.Valid() {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}
