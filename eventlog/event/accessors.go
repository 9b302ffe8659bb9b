package event

// EventKind implements [Payload].
func (RunStarted) EventKind() Kind { return KindRunStarted }

// EventKind implements [Payload].
func (UserMessageAppended) EventKind() Kind { return KindUserMessageAppended }

// EventKind implements [Payload].
func (TurnStarted) EventKind() Kind { return KindTurnStarted }

// EventKind implements [Payload].
func (ReasoningEmitted) EventKind() Kind { return KindReasoningEmitted }

// EventKind implements [Payload].
func (AssistantMessageCompleted) EventKind() Kind { return KindAssistantMessageCompleted }

// EventKind implements [Payload].
func (ToolCallScheduled) EventKind() Kind { return KindToolCallScheduled }

// EventKind implements [Payload].
func (ToolCallCompleted) EventKind() Kind { return KindToolCallCompleted }

// EventKind implements [Payload].
func (ToolCallFailed) EventKind() Kind { return KindToolCallFailed }

// EventKind implements [Payload].
func (SideEffectRecorded) EventKind() Kind { return KindSideEffectRecorded }

// EventKind implements [Payload].
func (BudgetExceeded) EventKind() Kind { return KindBudgetExceeded }

// EventKind implements [Payload].
func (ContextTruncated) EventKind() Kind { return KindContextTruncated }

// EventKind implements [Payload].
func (RunCompleted) EventKind() Kind { return KindRunCompleted }

// EventKind implements [Payload].
func (RunFailed) EventKind() Kind { return KindRunFailed }

// EventKind implements [Payload].
func (RunCancelled) EventKind() Kind { return KindRunCancelled }

// EventKind implements [Payload].
func (RunResumed) EventKind() Kind { return KindRunResumed }

// EventKind implements [Payload].
func (TurnFailed) EventKind() Kind { return KindTurnFailed }

// AsRunStarted decodes the payload of a [KindRunStarted] event.
func (e Event) AsRunStarted() (RunStarted, error) { return Decode[RunStarted](e) }

// AsUserMessageAppended decodes the payload of a [KindUserMessageAppended] event.
func (e Event) AsUserMessageAppended() (UserMessageAppended, error) {
	return Decode[UserMessageAppended](e)
}

// AsTurnStarted decodes the payload of a [KindTurnStarted] event.
func (e Event) AsTurnStarted() (TurnStarted, error) { return Decode[TurnStarted](e) }

// AsReasoningEmitted decodes the payload of a [KindReasoningEmitted] event.
func (e Event) AsReasoningEmitted() (ReasoningEmitted, error) { return Decode[ReasoningEmitted](e) }

// AsAssistantMessageCompleted decodes the payload of a
// [KindAssistantMessageCompleted] event.
func (e Event) AsAssistantMessageCompleted() (AssistantMessageCompleted, error) {
	return Decode[AssistantMessageCompleted](e)
}

// AsToolCallScheduled decodes the payload of a [KindToolCallScheduled] event.
func (e Event) AsToolCallScheduled() (ToolCallScheduled, error) { return Decode[ToolCallScheduled](e) }

// AsToolCallCompleted decodes the payload of a [KindToolCallCompleted] event.
func (e Event) AsToolCallCompleted() (ToolCallCompleted, error) { return Decode[ToolCallCompleted](e) }

// AsToolCallFailed decodes the payload of a [KindToolCallFailed] event.
func (e Event) AsToolCallFailed() (ToolCallFailed, error) { return Decode[ToolCallFailed](e) }

// AsSideEffectRecorded decodes the payload of a [KindSideEffectRecorded] event.
func (e Event) AsSideEffectRecorded() (SideEffectRecorded, error) {
	return Decode[SideEffectRecorded](e)
}

// AsBudgetExceeded decodes the payload of a [KindBudgetExceeded] event.
func (e Event) AsBudgetExceeded() (BudgetExceeded, error) { return Decode[BudgetExceeded](e) }

// AsContextTruncated decodes the payload of a [KindContextTruncated] event.
func (e Event) AsContextTruncated() (ContextTruncated, error) { return Decode[ContextTruncated](e) }

// AsRunCompleted decodes the payload of a [KindRunCompleted] event.
func (e Event) AsRunCompleted() (RunCompleted, error) { return Decode[RunCompleted](e) }

// AsRunFailed decodes the payload of a [KindRunFailed] event.
func (e Event) AsRunFailed() (RunFailed, error) { return Decode[RunFailed](e) }

// AsRunCancelled decodes the payload of a [KindRunCancelled] event.
func (e Event) AsRunCancelled() (RunCancelled, error) { return Decode[RunCancelled](e) }

// AsRunResumed decodes the payload of a [KindRunResumed] event.
func (e Event) AsRunResumed() (RunResumed, error) { return Decode[RunResumed](e) }

// AsTurnFailed decodes the payload of a [KindTurnFailed] event.
func (e Event) AsTurnFailed() (TurnFailed, error) { return Decode[TurnFailed](e) }
