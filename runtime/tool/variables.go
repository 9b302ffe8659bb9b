package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// RunContext describes the run to its tools.
type RunContext struct {
	RunID     string         // empty outside of a run
	SessionID string         // the conversation that the run is part of; empty without one
	Variables map[string]any // as [GetVariables] returns them
}

// runKey is the key under which a context.Context holds its runInfo.
type runKey struct{}

// runInfo is immutable. Variables are kept in recorded form, so that a replay has the same
// values, of the same types, as the run.
type runInfo struct {
	runID, sessionID string
	caller           *event.Caller
	variables        json.RawMessage // a canonical JSON object; nil: none
}

func infoOf(ctx context.Context) runInfo {
	info, _ := ctx.Value(runKey{}).(runInfo)
	return info
}

// WithRunID returns a context whose tools belong to that run. The session and the variables
// stay, so an inner run inherits those of the outer run.
func WithRunID(ctx context.Context, id string) context.Context {
	info := infoOf(ctx)
	info.runID = id
	return context.WithValue(ctx, runKey{}, info)
}

// WithSessionID returns a context whose runs belong to that session.
func WithSessionID(ctx context.Context, id string) context.Context {
	info := infoOf(ctx)
	info.sessionID = id
	return context.WithValue(ctx, runKey{}, info)
}

// WithCaller returns a context whose runs record who asked for them. The error names a field that
// a run cannot record.
func WithCaller(ctx context.Context, c event.Caller) (context.Context, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("tool: caller: %w", err)
	}
	info := infoOf(ctx)
	if info.caller = &c; c.IsZero() {
		info.caller = nil
	}
	return context.WithValue(ctx, runKey{}, info), nil
}

// GetCaller returns who asked for the runs of the context, or nil.
func GetCaller(ctx context.Context) *event.Caller { return infoOf(ctx).caller }

// WithVariables returns a context whose tools can read variables: a tenant, a user, or
// other values that the model must not choose. They replace the variables of ctx.
//
// Values are kept as JSON. So later changes to them do not matter, and a tool always reads
// a copy. The error names the values that encoding/json cannot write.
func WithVariables(ctx context.Context, variables map[string]any) (context.Context, error) {
	if variables == nil {
		return WithVariablesJSON(ctx, nil)
	}
	doc, err := json.Marshal(variables)
	if err != nil {
		return nil, fmt.Errorf("tool: variables: %w", err)
	}
	return WithVariablesJSON(ctx, doc)
}

// WithVariablesJSON is [WithVariables] for a JSON object, such as the result of
// [VariablesJSON]. An empty document means no variables.
func WithVariablesJSON(ctx context.Context, doc json.RawMessage) (context.Context, error) {
	info := infoOf(ctx)
	info.variables = nil
	if len(doc) > 0 {
		clean, err := canon.JSON(doc)
		if err != nil {
			return nil, fmt.Errorf("tool: variables: %w", err)
		}
		if clean[0] != '{' {
			return nil, errors.New("tool: variables are a JSON object")
		}
		info.variables = clean
	}
	return context.WithValue(ctx, runKey{}, info), nil
}

// VariablesJSON returns the variables as a canonical JSON object, or nil if there
// are none.
func VariablesJSON(ctx context.Context) json.RawMessage { return bytes.Clone(infoOf(ctx).variables) }

// GetRunContext returns the context of the run, or false outside a run.
func GetRunContext(ctx context.Context) (RunContext, bool) {
	info := infoOf(ctx)
	return RunContext{info.runID, info.sessionID, GetVariables(ctx)}, info.runID != ""
}

// GetRunID returns the id of the run, or "" outside a run.
func GetRunID(ctx context.Context) string { return infoOf(ctx).runID }

// GetSessionID returns the id of the session, or "" without a session.
func GetSessionID(ctx context.Context) string { return infoOf(ctx).sessionID }

// GetVariables returns a copy of all variables, decoded into any by encoding/json: numbers
// are float64. Without variables it is empty but not nil.
func GetVariables(ctx context.Context) map[string]any {
	variables := map[string]any{}
	_ = decodeVariables(ctx, &variables) // any object can be decoded into it
	return variables
}

// GetVariable returns a variable as a T, decoded by encoding/json. It reports false if the
// variable is missing, null, or not a T: a number is not a string, and 1.5 is not an int.
func GetVariable[T any](ctx context.Context, key string) (T, bool) {
	value, err := variable[T](ctx, key)
	return value, err == nil
}

// GetVariableOr is [GetVariable] with a value to return instead of false.
func GetVariableOr[T any](ctx context.Context, key string, otherwise T) T {
	if value, ok := GetVariable[T](ctx, key); ok {
		return value
	}
	return otherwise
}

// MustGetVariable is [GetVariable] for a required variable. It panics if the variable is
// missing, which fails the call of the tool.
func MustGetVariable[T any](ctx context.Context, key string) T {
	value, err := variable[T](ctx, key)
	if err != nil {
		panic(fmt.Sprintf("tool: variable %q: %v", key, err))
	}
	return value
}

func variable[T any](ctx context.Context, key string) (value T, err error) {
	var all map[string]json.RawMessage
	if err := decodeVariables(ctx, &all); err != nil {
		return value, err
	}
	doc, ok := all[key]
	if !ok || string(doc) == "null" {
		return value, errors.New("is not set")
	}
	if err := json.Unmarshal(doc, &value); err != nil {
		var none T
		return none, fmt.Errorf("is no %T: %w", none, err) // logs of tools that run in this process have this text
	}
	return value, nil
}

func decodeVariables(ctx context.Context, v any) error {
	doc := infoOf(ctx).variables
	if doc == nil {
		return nil
	}
	return json.Unmarshal(doc, v)
}
