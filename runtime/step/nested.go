package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// CallFrom lets the call of ctx call another tool of the run, and returns the outcome. The nested
// call is recorded like a call of [CallTool], with its parent. After it, the parent records an
// effect "call NAME" whose value identifies the nested call; so the record has the fuel that the
// parent had spent, and the point at which it continues.
//
// A replay makes the nested calls that are recorded. If the parent is repeated because the process
// died, nested calls with an outcome are not repeated, and an interrupted one is replaced, see
// [ToolCall.IdempKey].
//
// refuse, if not nil, is the reason why the parent may not make the call. The refusal is an
// [*EffectError], and so are an exhausted budget of the run and the end of the parent's context.
// Other errors are those of [CallTool] for a call without an outcome. CallFrom panics outside of a
// call.
func CallFrom(ctx context.Context, name string, args json.RawMessage, refuse error) (ToolResult, error) {
	a := attemptOf(ctx, "CallFrom")
	if a.callID == "" {
		panic("step: CallFrom outside of a call")
	}
	if len(name) > maxTextBytes {
		return ToolResult{}, fmt.Errorf("%w: the name of the tool has %d bytes, at most %d are allowed", ErrInvalidCall, len(name), maxTextBytes)
	}
	doc, err := ParseInput(args, nil)
	if err != nil {
		if syntax, ok := errors.AsType[*canon.SyntaxError](err); ok {
			err = syntax // no event has this text, and the guest of a replay must get the same
		}
		return ToolResult{}, fmt.Errorf("%w: arguments of %q: %w", ErrInvalidCall, name, err)
	}
	if _, err := a.nextEffect(); err != nil {
		return ToolResult{}, err
	}
	effect := event.SideEffectRecorded{Name: event.NestedCallPrefix + name, CallID: a.callID}
	earlier := a.earlierCall(&effect, name, doc.CBOR)
	key, calls := a.recordedCall()
	began := a.c.clock()
	var result ToolResult
	switch {
	case a.c.replaying() && !calls: // it was refused, or an earlier process had made the call
	case effect.Error != nil:
	case earlier != nil && earlier.ended:
		result = earlier.result
	default:
		if effect.Error = a.c.refuses(refuse); effect.Error != nil {
			break
		}
		if earlier != nil {
			key = earlier.key
		}
		results, err := callAll(ctx, a, []ToolCall{{Name: name, Doc: doc, IdempKey: key}})
		if err != nil {
			return ToolResult{}, err
		}
		result = results[0]
		if err := ctx.Err(); err != nil && !a.c.replaying() {
			effect.Error = effectFailure(ctx, err)
		}
		effect.DurationUs = a.c.since(began)
	}
	if answer, ok := ctx.Value(answerKey{}).(Answer); ok && !a.c.replaying() {
		_, took, _ := answer(effect.Name, nil)
		effect.DurationUs = took.Microseconds()
	}
	if result.CallID != "" && effect.Error == nil {
		if effect.Value, err = canon.Marshal(event.NestedCall{CallID: result.CallID}); err != nil {
			return ToolResult{}, err
		}
	}
	if effect, err = a.recordEffect(ctx, effect, readable[event.NestedCall]); err != nil {
		return ToolResult{}, err
	}
	if effect.Error != nil {
		return ToolResult{}, &EffectError{Name: effect.Name, Type: effect.Error.Type, Message: effect.Error.Message}
	}
	if result.CallID != "" {
		return result, nil
	}
	return a.c.earlierResult(effect.Value)
}

// earlierResult returns the outcome of the nested call that an effect names.
func (c *Context) earlierResult(value canon.Raw) (ToolResult, error) {
	var named event.NestedCall
	if err := canon.Unmarshal(value, &named); err != nil {
		return ToolResult{}, err
	}
	n := c.nested[named.CallID]
	if n == nil || !n.ended {
		return ToolResult{}, c.stop(fmt.Errorf("step: run %s has no outcome of the nested call %q", c.cfg.RunID, named.CallID))
	}
	return n.result, nil
}

// refuses returns the failure of a nested call that is not allowed. A replay makes the calls that
// are recorded.
func (c *Context) refuses(refuse error) *event.EffectError {
	if c.replaying() {
		return nil
	}
	if refuse == nil {
		c.mu.Lock()
		spent := c.meter.Tools()
		c.mu.Unlock()
		if spent == nil {
			return nil
		}
		refuse = fmt.Errorf("%w: %w", tool.ErrLimit, spent)
	}
	return effectFailure(context.Background(), refuse)
}

// recordedCall reports whether a replay must make a nested call next, because the recording has one
// or ends here, and returns its recorded IdempKey.
func (a *Attempt) recordedCall() (idempKey string, ok bool) {
	if !a.c.replaying() {
		return "", false
	}
	next := a.c.peek(a.callID)
	if next == nil {
		return "", true
	}
	scheduled, err := next.AsToolCallScheduled()
	return scheduled.IdempKey, err == nil
}

// nestedCall is a nested call in the earlier events of a run.
type nestedCall struct {
	parent string // the id in the idempotency keys of the parent
	name   string
	args   canon.Raw
	key    string // the id in its own idempotency keys
	result ToolResult
	ended  bool
	taken  bool // a call of this process replaces it; guarded by Context.mu
}

// takeNested records the nested calls in the payload of an earlier event. keys has, by id, the ids
// in the idempotency keys of the calls before it.
func (c *Context) takeNested(payload any, keys map[string]string) (err error) {
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		if p.Attempt > 1 {
			break
		}
		keys[p.CallID] = keyOf(p.CallID, p.IdempKey)
		if p.ParentID != "" {
			c.nested[p.CallID] = &nestedCall{
				parent: keys[p.ParentID], name: p.ToolName, args: p.Args, key: keys[p.CallID], result: ToolResult{CallID: p.CallID},
			}
		}
	case event.ToolCallCompleted:
		if n := c.nested[p.CallID]; n != nil {
			n.ended = true
			n.result.Result, err = canon.ToJSON(p.Result)
		}
	case event.ToolCallFailed:
		if n := c.nested[p.CallID]; n != nil && p.Final {
			n.ended, n.result.Err = true, &CallError{Tool: n.name, Failed: p, Err: errors.New(p.Error)}
		}
	}
	return err
}

// earlierCall returns the nested call that an earlier process made at this point, if the parent is
// repeated and has reached it. It prefers a call with an outcome to an interrupted one. It fills in
// what the parent has recorded of the effect: a refusal, and the time that it took.
func (a *Attempt) earlierCall(effect *event.SideEffectRecorded, name string, args canon.Raw) (found *nestedCall) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if a.c.replaying() || a.number > 1 || a.strayed {
		return nil
	}
	if rest := a.carried; len(rest) > 0 {
		var named event.NestedCall
		switch failed := rest[0].Error; {
		case rest[0].Name != effect.Name:
		case failed != nil && !isInterruption(failed.Type):
			a.carried = rest[1:]
			effect.Error, effect.DurationUs = failed, rest[0].DurationUs
			return nil
		case failed == nil && canon.Unmarshal(rest[0].Value, &named) == nil:
			if found = a.c.nested[named.CallID]; found != nil && found.ended && bytes.Equal(found.args, args) {
				a.carried, effect.DurationUs = rest[1:], rest[0].DurationUs
				a.c.take(found)
				return found
			}
		}
		a.stray()
		return nil
	}
	for _, n := range a.c.nested {
		same := !n.taken && n.parent == a.keyID && n.name == name && bytes.Equal(n.args, args)
		if same && (found == nil || n.ended) {
			found = n
		}
	}
	if found != nil {
		a.c.take(found)
	}
	return found
}

// take marks an earlier call as replaced by a call of this process. It may occur several times,
// once for each process that died during it. The caller holds mu.
func (c *Context) take(call *nestedCall) {
	for _, n := range c.nested {
		n.taken = n.taken || n.key == call.key
	}
}
