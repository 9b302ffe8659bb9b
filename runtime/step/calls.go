package step

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// ToolResult is the outcome of one call of [CallTools].
type ToolResult struct {
	CallID string
	Result json.RawMessage // canonical JSON; nil on failure
	Err    error           // a *CallError, or nil
}

// CallTools makes several calls at the same time, at most
// Config.MaxParallelTools of them, and returns their outcomes in the order of
// calls. One that fails does not disturb the others. When ctx ends, calls that
// wait for their turn fail without being started.
//
// All calls are scheduled, in the given order, before the first one starts.
// Their outcomes are recorded in the order in which they come about. A replay
// makes the calls one after another, in the recorded order of their outcomes.
//
// An error is returned when at least one call has no outcome; it is one of the
// errors that [CallTool] returns beside *[CallError]. CallTools panics outside of
// a run.
func CallTools(ctx context.Context, calls []ToolCall) ([]ToolResult, error) {
	return callAll(ctx, mustScope(ctx, "CallTools"), calls)
}

func callAll(ctx context.Context, s *scope, calls []ToolCall) ([]ToolResult, error) {
	plans, err := s.planAll(calls)
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		if err := s.schedule(ctx, p, 1); err != nil {
			return nil, err
		}
	}
	results := make([]ToolResult, len(plans))
	if s.c.replaying() {
		s.reenact(ctx, plans, results)
	} else {
		s.dispatch(ctx, plans, results)
	}
	return results, s.withoutOutcome(results)
}

// planAll checks all calls before anything is recorded.
func (s *scope) planAll(calls []ToolCall) ([]*plan, error) {
	plans := make([]*plan, len(calls))
	var chosen []string
	for i, call := range calls {
		p, err := s.plan(call)
		if err != nil {
			return nil, err
		}
		if !p.minted {
			chosen = append(chosen, p.CallID)
		}
		plans[i] = p
	}
	return plans, s.c.reserve(chosen...)
}

// errUnfinished is the error of a call whose tool ended its goroutine.
var errUnfinished = errors.New("step: the tool ended the goroutine that it was called on")

// dispatch makes the calls with as many workers as are allowed.
func (s *scope) dispatch(ctx context.Context, plans []*plan, results []ToolResult) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(plans)); i = next.Add(1) - 1 {
			results[i] = ToolResult{CallID: plans[i].CallID, Err: errUnfinished}
			results[i].Result, results[i].Err = s.carryOut(ctx, plans[i])
		}
	}
	workers := min(len(plans), s.c.cfg.MaxParallelTools)
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}

// reenact makes the calls one after another in the recorded order of their
// outcomes, those without one last, until the replay differs.
func (s *scope) reenact(ctx context.Context, plans []*plan, results []ToolResult) {
	for _, i := range s.recordedOrder(plans) {
		results[i].CallID = plans[i].CallID
		results[i].Result, results[i].Err = s.carryOut(ctx, plans[i])
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, p := range plans {
		s.c.matcher.join(s.attempt.callID, p.CallID, p.ended)
	}
}

// recordedOrder starts the streams of the calls and returns the order in which
// to follow them.
func (s *scope) recordedOrder(plans []*plan) []int {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	order := make([]int, len(plans))
	ends := make([]uint64, len(plans))
	for i, p := range plans {
		order[i], ends[i] = i, s.c.matcher.outcomeSeq(p.CallID)
		s.c.matcher.fork(s.attempt.callID, p.CallID)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ends[a], ends[b]) })
	return order
}

// withoutOutcome returns why a call has no outcome, or nil if all of them have
// one.
func (s *scope) withoutOutcome(results []ToolResult) error {
	if err := s.c.Err(); err != nil {
		return err
	}
	for _, r := range results {
		if _, failed := r.Err.(*CallError); r.Err != nil && !failed {
			return r.Err
		}
	}
	return nil
}
