package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
)

// RunContext describes the run to a tool that is called in it.
type RunContext struct {
	RunID     string         // empty outside of a run
	SessionID string         // the conversation that the run is part of; empty without one
	Variables map[string]any // as [GetVariables] returns them
}

// runKey is the key under which a context.Context holds its runInfo.
type runKey struct{}

// runInfo is never changed. Variables are kept as they are recorded, so that a
// replay has the same values, of the same types, as the run had.
type runInfo struct {
	runID, sessionID string
	variables        json.RawMessage // a canonical JSON object; nil: none
}

func infoOf(ctx context.Context) runInfo {
	info, _ := ctx.Value(runKey{}).(runInfo)
	return info
}

// WithRunID returns a context whose tools belong to the run of that name. The
// session and the variables stay, so a run within a run has those of the outer
// one.
func WithRunID(ctx context.Context, id string) context.Context {
	info := infoOf(ctx)
	info.runID = id
	return context.WithValue(ctx, runKey{}, info)
}

// WithSessionID returns a context whose runs belong to the session of that name.
func WithSessionID(ctx context.Context, id string) context.Context {
	info := infoOf(ctx)
	info.sessionID = id
	return context.WithValue(ctx, runKey{}, info)
}

// WithVariables returns a context whose tools can read variables: a tenant, a
// user, whatever the caller of a run knows and the model is not to decide. They
// take the place of those that ctx has.
//
// Values are kept as JSON. So later changes to them do not matter, and what a
// tool reads is always a copy. The error says which ones encoding/json cannot
// write.
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

// WithVariablesJSON is [WithVariables] for variables that are a JSON object
// already, as [VariablesJSON] returned it. An empty document stands for none.
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

// GetRunContext returns what there is to know of the run, or false outside of
// one.
func GetRunContext(ctx context.Context) (RunContext, bool) {
	info := infoOf(ctx)
	return RunContext{info.runID, info.sessionID, GetVariables(ctx)}, info.runID != ""
}

// GetRunID returns the identity of the run, empty outside of one.
func GetRunID(ctx context.Context) string { return infoOf(ctx).runID }

// GetSessionID returns the identity of the session, empty without one.
func GetSessionID(ctx context.Context) string { return infoOf(ctx).sessionID }

// GetVariables returns a copy of all variables, with the types that
// encoding/json gives to an any: numbers are float64. It is empty, and not nil,
// if there are none.
func GetVariables(ctx context.Context) map[string]any {
	variables := map[string]any{}
	_ = decodeVariables(ctx, &variables) // any object can be decoded into it
	return variables
}

// GetVariable returns a variable as a T, decoded as encoding/json does it. It is
// false if there is no variable of that name, if it is null, and if it is no T:
// a number is not a string, and 1.5 is not an int.
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

// MustGetVariable is [GetVariable] for a variable that is known to be there. It
// panics if it is not, which fails the call of the tool.
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
		return none, fmt.Errorf("is no %T: %w", none, err)
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
