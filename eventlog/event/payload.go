package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
)

// Kind is the type of an event. The set is closed: a new kind is a new schema
// version (spec/event.md).
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

// KindNamed returns the kind of a name of spec/event.md; zero, which is not valid, for any other text.
func KindNamed(name string) Kind {
	return Kind(max(slices.Index(kindNames[:], name), 0))
}

// SchemaVersion is the version of the payloads below, written into
// [RunStarted]. Readers accept 1 up to this one.
const SchemaVersion = 1

// Payload structs carry the wire names of the Starling format. A field without
// omitempty is always on the wire, as null when it is nil; the fields that this
// project adds are all omitempty, so that a run that does not use them has the
// bytes that Starling would have written.

// RunStarted pins everything that determines the bytes of a run. It is the
// first event of every run.
type RunStarted struct {
	SchemaVersion    uint32          `cbor:"schema_version"`
	Goal             string          `cbor:"goal"`
	ProviderID       string          `cbor:"provider_id"`
	ModelID          string          `cbor:"model_id"`
	APIVersion       string          `cbor:"api_version"`
	ParamsHash       []byte          `cbor:"params_hash"` // BLAKE3 of Params, nil without
	Params           canon.Raw       `cbor:"params"`
	SystemPromptHash []byte          `cbor:"system_prompt_hash"` // BLAKE3 of the UTF-8 text, nil when empty
	SystemPrompt     string          `cbor:"system_prompt"`
	ToolRegistryHash []byte          `cbor:"tool_registry_hash"` // see [RegistryHash], nil without tools
	ToolSchemas      []ToolSchemaRef `cbor:"tool_schemas"`       // sorted by name; empty, never nil
	Budget           *BudgetLimits   `cbor:"budget,omitempty"`
	StarlingVersion  string          `cbor:"starling_version,omitempty"` // informative; replay copies it
	AppVersion       string          `cbor:"app_version,omitempty"`      // informative; replay copies it
	SessionID        string          `cbor:"session_id,omitempty"`       // the conversation that the run is part of
	Variables        canon.Raw       `cbor:"variables,omitzero"`         // the variables that the caller gave the tools; nil without, or a map
	MaxTurns         uint32          `cbor:"max_turns,omitempty"`        // exchanges with the model at most; zero for no bound
	Request          *RequestOptions `cbor:"request,omitempty"`          // what every request to the model has beside the conversation
	Caller           *Caller         `cbor:"caller,omitempty"`           // who asked for the run; informative; replay copies it
	Workspace        *Workspace      `cbor:"workspace,omitempty"`        // the files that an agent's first call is given; replay copies it
}

// RequestOptions are the parts of a request to a model that every provider knows;
// Params of [RunStarted] has the others.
type RequestOptions struct {
	ToolChoice      string   `cbor:"tool_choice,omitempty"`
	StopSequences   []string `cbor:"stop_sequences,omitempty"`
	TopK            *int64   `cbor:"top_k,omitempty"`
	MaxOutputTokens int64    `cbor:"max_output_tokens,omitempty"`
}

// ToolSchemaRef identifies one tool that a run may call.
type ToolSchemaRef struct {
	Name            string   `cbor:"name"`
	SchemaHash      []byte   `cbor:"schema_hash"`                // BLAKE3 of the input schema's bytes
	DescriptionHash []byte   `cbor:"description_hash,omitempty"` // BLAKE3 of the description's UTF-8
	Sandbox         *Sandbox `cbor:"sandbox,omitempty"`          // nil for a tool that is not a module

	// What a replay needs for a tool that has another name at its source, or that
	// is neither a module nor code of the program.
	Source      string `cbor:"source,omitempty"`      // where the tool is from, such as "builtin:fetch", "mcp:search" or "export:dice"
	Description string `cbor:"description,omitempty"` // as the model was shown it
	Schema      string `cbor:"schema,omitempty"`      // JSON

	// Position is the tool's place among the tools shown to the model, from 1; zero
	// if the model sees them sorted by name, as they are recorded.
	Position uint32 `cbor:"position,omitempty"`

	// Attempts is how often a failing call is attempted at most; zero means once.
	Attempts uint32 `cbor:"attempts,omitempty"`

	// InCode means that the model does not see the tool: the programs that it writes call it.
	InCode bool `cbor:"in_code,omitempty"`
}

// Sandbox determines, with the input and the recorded effects, the bytes that
// a sandboxed tool produces.
type Sandbox struct {
	Module    []byte        `cbor:"module"`     // BLAKE3-256 of the module as loaded
	ABI       string        `cbor:"abi"`        // abi.Version, or "wasi:command"
	CostTable uint32        `cbor:"cost_table"` // version of spec/determinism.md's table
	Limits    SandboxLimits `cbor:"limits"`
	Rules     uint32        `cbor:"rules,omitempty"`  // of a call, which an earlier host did not have, see [RulesVersion]
	Allow     []string      `cbor:"allow,omitempty"`  // hosts that egress allowed; for the reader, not for replay
	Policy    *PolicyRef    `cbor:"policy,omitempty"` // the policies that held then; for the reader, not for replay
}

// RulesVersion is the newest value of Sandbox.Rules: an exchange, or a call of another tool, moves
// the tool's clock by the recorded time that it took, and the error of a WASI command that fails has
// what it printed on standard output. In runs of before the field neither is so.
const RulesVersion = 1

// SandboxLimits are the bounds of one call. Zero means unbounded, where the
// field's comment does not forbid it.
type SandboxLimits struct {
	Fuel        uint64 `cbor:"fuel"`         // units of spec/determinism.md
	MemoryPages uint32 `cbor:"memory_pages"` // 64 KiB pages, 1 to 65536
	Depth       uint32 `cbor:"depth"`        // weighted frame slots
	TimeoutMs   int64  `cbor:"timeout_ms"`   // wall clock; informative for replay, which has no clock
	InputBytes  uint64 `cbor:"input_bytes"`  // of the arguments, without the ABI's wrapping
	OutputBytes uint64 `cbor:"output_bytes"`
	LogBytes    uint64 `cbor:"log_bytes"` // kept from the guest's output on fd 1 and 2
	Effects     uint64 `cbor:"effects"`   // recorded effects per call
	EffectBytes uint64 `cbor:"effect_bytes"`
}

// BudgetLimits are the spending caps of a run; zero disables an axis.
type BudgetLimits struct {
	MaxInputTokens  int64   `cbor:"max_input_tokens,omitempty"`
	MaxOutputTokens int64   `cbor:"max_output_tokens,omitempty"`
	MaxUSD          float64 `cbor:"max_usd,omitempty"`
	MaxWallClockMs  int64   `cbor:"max_wall_clock_ms,omitempty"`

	// What sandboxed tools may use in all calls together.
	MaxFuel        uint64 `cbor:"max_fuel,omitempty"`
	MaxEffects     uint64 `cbor:"max_effects,omitempty"`
	MaxEgressBytes uint64 `cbor:"max_egress_bytes,omitempty"`
}

// UserMessageAppended records a message that was added to a run in progress.
type UserMessageAppended struct {
	Content string `cbor:"content"`
}

// TurnStarted opens one exchange with the model.
type TurnStarted struct {
	TurnID      string `cbor:"turn_id"`
	PromptHash  []byte `cbor:"prompt_hash"`
	InputTokens int64  `cbor:"input_tokens"`     // the estimate made before the call
	Images      uint32 `cbor:"images,omitempty"` // of results of tools, which the model gets as such and not in the text
}

// ReasoningEmitted records one block of the model's reasoning.
type ReasoningEmitted struct {
	TurnID    string `cbor:"turn_id"`
	Content   string `cbor:"content"`
	Sensitive bool   `cbor:"sensitive"` // not for everybody who may read the answer: true except in blocks of earlier programs
	Signature []byte `cbor:"signature,omitempty"`
	Redacted  bool   `cbor:"redacted,omitempty"` // Content is opaque to everyone but the provider
}

// AssistantMessageCompleted closes a turn.
type AssistantMessageCompleted struct {
	TurnID            string           `cbor:"turn_id"`
	Text              string           `cbor:"text"`
	ToolUses          []PlannedToolUse `cbor:"tool_uses,omitempty"`
	StopReason        string           `cbor:"stop_reason"` // in the provider's own word
	InputTokens       int64            `cbor:"input_tokens"`
	OutputTokens      int64            `cbor:"output_tokens"`
	CacheReadTokens   int64            `cbor:"cache_read_tokens,omitempty"`
	CacheCreateTokens int64            `cbor:"cache_create_tokens,omitempty"`
	CostUSD           float64          `cbor:"cost_usd"`
	RawResponseHash   []byte           `cbor:"raw_response_hash"`
	ProviderRequestID string           `cbor:"provider_request_id,omitempty"`
	Outcome           string           `cbor:"outcome,omitempty"` // AnswerPaused, ErrorCut or ErrorRefused; empty for a whole answer
}

// AnswerPaused is the outcome of an answer that the model continues in the next turn.
const AnswerPaused = "paused"

// PlannedToolUse is a call that the model asked for.
type PlannedToolUse struct {
	CallID   string    `cbor:"call_id"`
	ToolName string    `cbor:"tool"`
	Args     canon.Raw `cbor:"args"`

	// Malformed is the reason why the arguments are not an object, as the tool requires.
	Malformed string `cbor:"malformed,omitempty"`
}

// ToolCallScheduled is written before anything of the call runs, and durable
// before its first effect leaves the host.
type ToolCallScheduled struct {
	CallID   string    `cbor:"call_id"`
	TurnID   string    `cbor:"turn_id"`
	ToolName string    `cbor:"tool"`
	Args     canon.Raw `cbor:"args"`
	Attempt  uint32    `cbor:"attempt"` // from 1
	IdempKey string    `cbor:"idemp_key,omitempty"`
	ParentID string    `cbor:"parent_id,omitempty"` // the call from within which this one was made

	// Commitment is a receipt of the scheduled call (spec/receipt.md, section 5), which is durable
	// before the first effect; replay copies it.
	Commitment []byte `cbor:"commitment,omitempty"`

	Workspace *Workspace `cbor:"workspace,omitempty"` // the files that the call was given; nil for none
}

// Workspace is the tree of files that a call was given (spec/workspace.md).
type Workspace struct {
	Root   []byte  `cbor:"root"`   // BLAKE3-256 digest of the tree
	Mounts []Mount `cbor:"mounts"` // sorted by At; none is inside another
}

// Mount is a folder of a call's tree, which the call sees at a path.
type Mount struct {
	At       string `cbor:"at"` // absolute and clean, such as /workspace; never "/"
	Writable bool   `cbor:"writable,omitempty"`
}

// Bounds of a [Workspace].
const (
	MaxMounts     = 64
	MaxMountBytes = 4096 // of a path
)

// Check returns an error that names the first thing in w that no call may be given.
func (w *Workspace) Check() error {
	switch {
	case len(w.Root) != HashSize:
		return fmt.Errorf("the root of the workspace has %d bytes, not %d", len(w.Root), HashSize)
	case len(w.Mounts) == 0 || len(w.Mounts) > MaxMounts:
		return fmt.Errorf("the workspace has %d mounts, not 1 to %d", len(w.Mounts), MaxMounts)
	}
	for i, m := range w.Mounts {
		if len(m.At) < 2 || len(m.At) > MaxMountBytes || m.At[0] != '/' || path.Clean(m.At) != m.At || strings.ContainsRune(m.At, 0) {
			return fmt.Errorf("the workspace has a mount at %.100q: want an absolute path without . and .., such as /workspace", m.At)
		}
		for _, before := range w.Mounts[:i] {
			if before.At >= m.At || strings.HasPrefix(m.At, before.At+"/") {
				return fmt.Errorf("the mounts at %.100q and %.100q are not sorted, or one is inside the other", before.At, m.At)
			}
		}
	}
	return nil
}

// ToolCallCompleted closes an attempt that succeeded.
type ToolCallCompleted struct {
	CallID     string    `cbor:"call_id"`
	Result     canon.Raw `cbor:"result"`
	DurationMs int64     `cbor:"duration_ms"` // replay copies it
	Attempt    uint32    `cbor:"attempt"`
	Meter
}

// ToolCallFailed closes an attempt that failed.
type ToolCallFailed struct {
	CallID     string `cbor:"call_id"`
	Error      string `cbor:"error"`
	ErrorType  string `cbor:"error_type"`  // one of the Error constants
	DurationMs int64  `cbor:"duration_ms"` // replay copies it
	Attempt    uint32 `cbor:"attempt"`
	Final      bool   `cbor:"final,omitempty"`   // no further attempt follows
	WaitMs     int64  `cbor:"wait_ms,omitempty"` // until the next attempt; replay copies it, and does not wait
	Meter
}

// Meter is the consumption of a sandboxed call. It is a function of the
// module, the input and the recorded effects, so replay compares it.
type Meter struct {
	Fuel       uint64 `cbor:"fuel,omitempty"`        // units of spec/determinism.md
	PeakMemory uint64 `cbor:"peak_memory,omitempty"` // bytes of linear memory
	Log        string `cbor:"log,omitempty"`         // the guest's output on fd 1 and 2, valid UTF-8, capped
	Workspace  []byte `cbor:"workspace,omitempty"`   // root of the tree that a successful call left, if it was given one
}

// The values of ToolCallFailed.ErrorType. The first four are the Starling runtime's; the
// others belong to sandboxed tools.
const (
	ErrorTool      = "tool"      // the tool reported it, or does not exist
	ErrorPanic     = "panic"     // the tool panicked or trapped
	ErrorCancelled = "cancelled" // the caller's context was cancelled
	ErrorTimeout   = "timeout"   // the host's own deadline passed
	ErrorFuel      = "fuel"      // the fuel budget was spent
	ErrorLimit     = "limit"     // another bound of [SandboxLimits] was hit
	ErrorLost      = "lost"      // the process died that the tool ran in
)

// The values of RunFailed.ErrorType that no call has.
const (
	ErrorBudget   = "budget"    // a spending cap was passed
	ErrorMaxTurns = "max_turns" // the model wanted to continue after its last turn
	ErrorProvider = "provider"  // the model could not be asked, or broke off
	ErrorRefused  = "refused"   // the model, or a filter of its provider, refused to answer
	ErrorCut      = "cut"       // the model's answer was longer than it may be
	ErrorInternal = "internal"  // the host could not make the run
)

// SideEffectRecorded records one effect and its result.
type SideEffectRecorded struct {
	Name    string       `cbor:"name"`
	Value   canon.Raw    `cbor:"value"`             // null when the effect failed
	CallID  string       `cbor:"call_id,omitempty"` // the call that caused it; empty outside of calls
	Request []byte       `cbor:"request,omitempty"` // for effects that have a request
	Error   *EffectError `cbor:"error,omitempty"`   // the failure, which replays as the same failure
	Fuel    uint64       `cbor:"fuel,omitempty"`    // the call's counter at the host call

	DurationUs int64 `cbor:"duration_us,omitempty"` // in microseconds; replay copies it
}

// EffectError is the failure of an effect.
type EffectError struct {
	Type         string `cbor:"type"` // an Error constant, or transient, cancel, discard or snooze of abi.ErrorKind
	Message      string `cbor:"message"`
	RetryAfterMs int64  `cbor:"retry_after_ms,omitempty"` // of a snooze; zero leaves it to the host
}

// NestedCallPrefix begins the name of a nested call's effect, before the name of the
// tool. Its value is a [NestedCall].
const NestedCallPrefix = "call "

// NestedCall names the call that one call had another tool of the run make.
type NestedCall struct {
	CallID string `cbor:"call_id"`
}

// The names of SideEffectRecorded that belong to the runtime.
const (
	EffectNow    = "now"    // value: int, Unix nanoseconds
	EffectRandom = "rand"   // value: uint, 64 random bits
	EffectSeed   = "seed"   // value: 32 bytes that seed a call's own generator
	EffectIntent = "intent" // value: [Intent]; the effect may have happened even if nothing else is recorded
	EffectModel  = "model"  // value: [ModelFailure]; a request to the model that brought no answer
	EffectPolicy = "policy" // value: [Verdicts]; whether a call may be made with its arguments
)

// ReservedEffect reports whether name is one of the reserved names, which no
// tool may give to its own effects.
func ReservedEffect(name string) bool {
	switch name {
	case EffectNow, EffectRandom, EffectSeed, EffectIntent, EffectModel, EffectPolicy:
		return true
	}
	return false
}

// IsHostCall reports whether a tool made the effect, and not the runtime: it read the
// clock, drew a number or sent a message. The runtime's own effects are the intent of an
// effect, a failure of the model, and the verdict of a policy.
func (p SideEffectRecorded) IsHostCall() bool {
	return p.Name != EffectIntent && p.Name != EffectModel && p.Name != EffectPolicy
}

// Exchange is the value of an effect that is an HTTP exchange.
type Exchange struct {
	Response []byte     `cbor:"response,omitempty"` // message/http
	Status   abi.Status `cbor:"status,omitempty"`   // negative without a response
	Text     string     `cbor:"text,omitempty"`     // why
	Decision Verdicts   `cbor:"decision,omitempty"` // of the policies of the run, if it has any
}

// StatusCode returns the HTTP status of the response, or zero without one.
func (x Exchange) StatusCode() int {
	_, rest, _ := bytes.Cut(x.Response[:min(len(x.Response), 64)], []byte(" "))
	code, _ := strconv.Atoi(string(rest[:min(len(rest), 3)]))
	return max(code, 0)
}

// PolicyRef names the policies of a run by their digests.
type PolicyRef struct {
	Operator []byte `cbor:"operator,omitempty"`
	Tenant   []byte `cbor:"tenant,omitempty"`
}

// Verdict is one policy's decision on a request or a call.
type Verdict struct {
	Policy []byte `cbor:"policy"`           // digest
	Side   string `cbor:"side"`             // "operator" or "tenant"
	Rule   uint32 `cbor:"rule,omitempty"`   // of the network that allowed a request, from 1
	Line   uint32 `cbor:"line,omitempty"`   // of the decision; 0 when no rule of the policy decided
	Denied string `cbor:"denied,omitempty"` // why not; empty when it is allowed
	Answer string `cbor:"answer,omitempty"` // of the user, when the policy has asked: "accept", "decline" or "cancel"
}

// Verdicts are the decisions of the policies that were asked: either all of them allow the request,
// or the last one does not.
type Verdicts []Verdict

// Allowed reports whether all allow it. Without a policy nothing is allowed.
func (v Verdicts) Allowed() bool { return len(v) > 0 && v[len(v)-1].Denied == "" }

// Reason names the side that does not allow it, and the cause. It is empty if
// all allow it.
func (v Verdicts) Reason() string {
	switch {
	case len(v) == 0:
		return "there is no policy that allows it"
	case v.Allowed():
		return ""
	}
	last := v[len(v)-1]
	return "the " + last.Side + "'s policy does not allow it: " + last.Denied
}

// Intent is the value of an [EffectIntent] record. It is durable before the
// effect that it announces leaves the host.
type Intent struct {
	Name string `cbor:"name"` // the name of the effect that follows
	Key  string `cbor:"key"`  // its idempotency key
}

// ModelFailure is the value of an [EffectModel] record.
type ModelFailure struct {
	TurnID      string `cbor:"turn_id"`
	Attempt     uint32 `cbor:"attempt"` // from 1
	Class       string `cbor:"class"`   // rate_limit, auth, server, network, invalid_stream, no_hash, limit, cancelled, timeout or provider
	Error       string `cbor:"error"`
	PartialText string `cbor:"partial_text,omitempty"` // the received part of the answer
	WaitMs      int64  `cbor:"wait_ms,omitempty"`      // until the next attempt; a replay does not wait
	Final       bool   `cbor:"final,omitempty"`        // no further attempt follows

	// The tokens that the provider had counted when the answer broke off. They are spent.
	InputTokens  int64   `cbor:"input_tokens,omitempty"`
	OutputTokens int64   `cbor:"output_tokens,omitempty"`
	CostUSD      float64 `cbor:"cost_usd,omitempty"`
}

// ModelFailure returns the value of an [EffectModel] record. It is false for any
// other effect, and for a value that cannot be decoded.
func (p SideEffectRecorded) ModelFailure() (f ModelFailure, ok bool) {
	return f, p.Name == EffectModel && canon.Unmarshal(p.Value, &f) == nil
}

// BudgetExceeded records the trip of a spending cap.
type BudgetExceeded struct {
	Limit         string  `cbor:"limit"` // input_tokens, output_tokens, usd, wall_clock, fuel, effects or egress_bytes
	Cap           float64 `cbor:"cap"`
	Actual        float64 `cbor:"actual"`
	Where         string  `cbor:"where"` // pre_call, mid_stream, or for what tools use post_call
	TurnID        string  `cbor:"turn_id,omitempty"`
	CallID        string  `cbor:"call_id,omitempty"`
	PartialText   string  `cbor:"partial_text,omitempty"`
	PartialTokens int64   `cbor:"partial_tokens,omitempty"`
}

// RunCompleted ends a run that succeeded.
type RunCompleted struct {
	FinalText         string  `cbor:"final_text"`
	TurnCount         uint32  `cbor:"turn_count"`
	ToolCallCount     uint32  `cbor:"tool_call_count"`
	TotalCostUSD      float64 `cbor:"total_cost_usd"`
	TotalInputTokens  int64   `cbor:"total_input_tokens"`
	TotalOutputTokens int64   `cbor:"total_output_tokens"`
	DurationMs        int64   `cbor:"duration_ms"` // replay copies it
	MerkleRoot        []byte  `cbor:"merkle_root"` // over the hashes of all earlier events
}

// RunFailed ends a run that failed.
type RunFailed struct {
	Error      string `cbor:"error"`
	ErrorType  string `cbor:"error_type"` // an Error constant, or budget, max_turns, provider, internal
	MerkleRoot []byte `cbor:"merkle_root"`
	DurationMs int64  `cbor:"duration_ms"`
}

// RunCancelled ends a run that was cancelled.
type RunCancelled struct {
	Reason     string `cbor:"reason"`
	MerkleRoot []byte `cbor:"merkle_root"`
	DurationMs int64  `cbor:"duration_ms"`
}

// RunResumed marks the seam between the process that began a run and the
// process that continued it.
type RunResumed struct {
	AtSeq        uint64 `cbor:"at_seq"` // the last event of the earlier process
	ExtraMessage string `cbor:"extra_message,omitempty"`
	ReissueTools bool   `cbor:"reissue_tools"`
	PendingCalls uint32 `cbor:"pending_calls"`
}

// ContextTruncated is reserved. Its fields are not defined yet, so a
// reader gets them as they are.
type ContextTruncated map[string]canon.Raw

// TurnFailed is reserved like [ContextTruncated].
type TurnFailed map[string]canon.Raw

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

// Caller is who asked for a run. The host itself knows the first four fields; the others are
// claims, see [ParseClaims]. No decision depends on any of them.
type Caller struct {
	KeyID   string `cbor:"key_id,omitempty"` // of the API key that authenticated the request
	Client  string `cbor:"client,omitempty"` // name of the MCP client, as it introduced itself
	Version string `cbor:"version,omitempty"`
	Session string `cbor:"session,omitempty"` // of the client with the host; random

	Issuer      string   `cbor:"issuer,omitempty"`      // "iss" of an OAuth token (RFC 9068)
	Subject     string   `cbor:"subject,omitempty"`     // its "sub"
	Actor       string   `cbor:"actor,omitempty"`       // "sub" of its "act" (RFC 8693)
	TraceParent string   `cbor:"traceparent,omitempty"` // W3C Trace Context
	Delegation  [][]byte `cbor:"delegation,omitempty"`  // SHA-256 of documents that delegate to the caller
}

// Bounds of a [Caller].
const (
	maxCallerText  = 1024 // bytes
	maxDelegations = 8
)

// Check returns why a run cannot record the caller, or nil.
func (c Caller) Check() error {
	for _, text := range []string{c.KeyID, c.Client, c.Version, c.Session, c.Issuer, c.Subject, c.Actor, c.TraceParent} {
		if len(text) > maxCallerText || !utf8.ValidString(text) {
			return fmt.Errorf("a text of it is not UTF-8 of at most %d bytes", maxCallerText)
		}
	}
	if len(c.Delegation) > maxDelegations || slices.ContainsFunc(c.Delegation, func(d []byte) bool { return len(d) != sha256.Size }) {
		return fmt.Errorf("delegation is not a list of at most %d SHA-256 digests", maxDelegations)
	}
	return nil
}

// IsZero reports whether nothing is known of the caller.
func (c Caller) IsZero() bool {
	return c.Delegation == nil && c.KeyID+c.Client+c.Version+c.Session+c.Issuer+c.Subject+c.Actor+c.TraceParent == ""
}

// String names the caller in one line, for people: who acts for whom, by which client. What the
// caller says of itself is quoted, so that none of it looks like what the host knows.
func (c Caller) String() string {
	var b bytes.Buffer
	for _, part := range []struct{ format, value string }{
		{" key %s", c.KeyID}, {" %q", c.Client}, {" %q", c.Version}, {" session %s", c.Session}, {" for %q", c.Subject}, {" of %q", c.Issuer}, {" by %q", c.Actor},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, part.format, part.value)
		}
	}
	if n := len(c.Delegation); n > 0 {
		fmt.Fprintf(&b, " delegations %d", n)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// ParseClaims reads what a caller claims of itself: a JSON object with "issuer", "subject", "actor"
// and "delegation", an array of SHA-256 digests in hexadecimal. All are optional, and other members
// are refused.
func ParseClaims(doc []byte) (Caller, error) {
	var claims struct {
		Issuer, Subject, Actor string
		Delegation             []string
	}
	decoder := json.NewDecoder(bytes.NewReader(doc))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&claims); err != nil {
		return Caller{}, errors.New("caller: want an object with the texts issuer, subject and actor, and delegation, an array of SHA-256 digests in hexadecimal; all are optional")
	}
	c := Caller{Issuer: claims.Issuer, Subject: claims.Subject, Actor: claims.Actor}
	for _, text := range claims.Delegation {
		digest, err := hex.DecodeString(text)
		if err != nil {
			digest = nil // which is no SHA-256
		}
		c.Delegation = append(c.Delegation, digest)
	}
	if err := c.Check(); err != nil {
		return Caller{}, fmt.Errorf("caller: %w", err)
	}
	return c, nil
}
