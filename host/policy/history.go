package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/runtime/egress"
)

// Use is an action of a recorded run that a policy decides about: a call, a request, or the consumption of a call.
// Actions denied in the recording are left out.
type Use struct {
	Seq  uint64 // of the event
	Tool string // as the agent calls it

	Arguments []byte      // of a call, as JSON; nil otherwise
	Sandboxed bool        // limits apply to the call
	Request   *Request    // nil otherwise
	Response  uint64      // bytes of the response to the request
	Meter     event.Meter // of the outcome of a sandboxed call
	Effects   Used        // of that call: the number of its effects, and their bytes

	call string // id of the call
}

// Uses returns the actions of a run in the order of its log. Retries of a call have the same arguments, so Uses has
// only the first attempt.
func Uses(events []event.Event) ([]Use, error) {
	h := history{
		tools: map[string]string{}, sandboxed: map[string]bool{}, denied: map[string]bool{}, open: map[string]Use{}, copies: newCopies(),
	}
	for _, ev := range events {
		if err := h.note(ev); err != nil {
			return nil, fmt.Errorf("policy: event %d: %w", ev.Seq, err)
		}
	}
	for call, use := range h.open { // calls without an outcome
		h.add(call, use)
	}
	slices.SortStableFunc(h.uses, func(a, b Use) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.DeleteFunc(h.uses, func(use Use) bool { return h.denied[use.call] }), nil
}

// history reads the events of a run.
type history struct {
	tools     map[string]string // the tool of each call
	sandboxed map[string]bool   // the sandboxed tools
	denied    map[string]bool   // calls that were not allowed
	open      map[string]Use    // the effects of each call's current attempt, by call
	uses      []Use
	copies    *copies
}

func (h *history) add(call string, use Use) {
	use.call, use.Tool = call, h.tools[call]
	use.Sandboxed = h.sandboxed[use.Tool]
	h.uses = append(h.uses, use)
}

// outcome records the end of an attempt.
func (h *history) outcome(call string, seq uint64, m event.Meter) {
	h.add(call, Use{Seq: seq, Meter: m, Effects: h.open[call].Effects})
	delete(h.open, call)
}

func (h *history) note(ev event.Event) error {
	if ev.Kind == event.KindRunStarted {
		return event.On(ev, func(p event.RunStarted) {
			for _, t := range p.ToolSchemas {
				h.sandboxed[t.Name] = t.Sandbox != nil
			}
		})
	}
	payload, err := event.OfCall(ev)
	if err != nil {
		return err
	}
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		if h.copies.scheduled(p); p.Attempt > 1 {
			break
		}
		h.tools[p.CallID] = p.ToolName
		doc, err := canon.ToJSON(p.Args)
		h.add(p.CallID, Use{Seq: ev.Seq, Arguments: doc})
		return err
	case event.ToolCallCompleted:
		h.outcome(p.CallID, ev.Seq, p.Meter)
	case event.ToolCallFailed:
		h.outcome(p.CallID, ev.Seq, p.Meter)
	case event.SideEffectRecorded:
		h.effect(ev.Seq, p)
		h.countEffect(ev.Seq, p)
	}
	return nil
}

// countEffect counts an effect against the limits of its call, as the sandbox does
// (spec/abi.md, section 6).
func (h *history) countEffect(seq uint64, p event.SideEffectRecorded) {
	if !h.sandboxed[h.tools[p.CallID]] {
		return
	}
	bytes := uint64(len(p.Request))
	var x event.Exchange
	switch {
	case !p.IsHostCall():
		return
	case p.Name == event.EffectNow || p.Name == event.EffectRandom:
		bytes = 8
	case p.Name == event.EffectSeed:
		bytes = 32
	case p.Error == nil && canon.Unmarshal(p.Value, &x) == nil: // the guest received one of the two
		bytes += uint64(len(x.Response) + len(x.Text))
	}
	use := h.open[p.CallID]
	h.open[p.CallID] = Use{Seq: seq, Effects: Used{use.Effects.Calls + 1, use.Effects.Bytes + bytes}}
}

// builtinFetch is the name of the effect of the built-in fetch. Its request is a URL; redirects are not in the log.
const builtinFetch = "fetch"

// requestOf returns the request of an effect, even if the request failed, and whether it is one of the built-in
// fetch.
func requestOf(p event.SideEffectRecorded) (r *egress.Request, fetched bool, err error) {
	r, err = egress.ParseRequest(p.Request)
	if err != nil && p.Name == builtinFetch {
		return &egress.Request{Method: "GET", URL: string(p.Request)}, true, nil
	}
	return r, false, err
}

// effect records an exchange or a denied call. Policies do not decide about other effects.
func (h *history) effect(seq uint64, p event.SideEffectRecorded) {
	if p.Name == event.EffectPolicy {
		var verdicts event.Verdicts
		h.denied[p.CallID] = canon.Unmarshal(p.Value, &verdicts) == nil && !verdicts.Allowed()
		return
	}
	if len(p.Request) == 0 {
		return
	}
	r, fetched, err := requestOf(p)
	if err != nil || fetched && p.Error != nil {
		return
	}
	if h.copies.copied(p) {
		return
	}
	access, err := r.Access()
	var x event.Exchange
	if err != nil || p.Error == nil && (canon.Unmarshal(p.Value, &x) != nil || x.Status == abi.StatusDenied) {
		return
	}
	h.add(p.CallID, Use{
		Seq: seq, Response: uint64(len(x.Response)),
		Request: &Request{Access: access, Tool: h.tools[p.CallID], Bytes: uint64(len(p.Request))},
	})
}

// Refusal is an action that a policy would have refused.
type Refusal struct {
	Use      Use
	Decision Decision
}

// RefusalDocument is a refusal as JSON.
type RefusalDocument struct {
	RunID   string `json:"run_id"`
	Seq     uint64 `json:"seq"`
	Tool    string `json:"tool"`
	Request string `json:"request,omitempty"`
	Line    int    `json:"line"`
	Reason  string `json:"reason"`
}

// Document returns the document of a refusal in a run.
func (r Refusal) Document(runID string) RefusalDocument {
	last := r.Decision.Verdicts[len(r.Decision.Verdicts)-1]
	doc := RefusalDocument{RunID: runID, Seq: r.Use.Seq, Tool: r.Use.Tool, Line: r.Decision.Line, Reason: last.Denied}
	if q := r.Use.Request; q != nil {
		doc.Request = q.Method + " " + q.Access.Origin() + q.Path
	}
	return doc
}

// Test returns the actions of a recorded run that the policies would have refused. Refused actions do not count
// towards later decisions. Private addresses are not checked, because the log does not show them.
func Test(operator, tenant *Policy, events []event.Event) ([]Refusal, error) {
	uses, err := Uses(events)
	if err != nil {
		return nil, err
	}
	run := NewRun(operator, tenant, nil)
	var refused []Refusal
	for _, use := range uses {
		if d, ok := run.test(use); !ok {
			refused = append(refused, Refusal{use, d})
		}
	}
	return refused, nil
}

// test decides about one action and counts it.
func (r *Run) test(use Use) (d Decision, ok bool) {
	switch {
	case use.Arguments != nil:
		if d, asked := DecideCall(r.operator, r.tenant, use.Tool, use.Arguments); asked && !d.Allowed() {
			return d, false
		}
	case use.Request != nil:
		d = Decide(r.operator, r.tenant, *use.Request, r.used)
		if !d.Allowed() {
			return d, false
		}
		if left := d.Grant.MaxResponse; left > 0 && use.Response > uint64(left) {
			last := &d.Verdicts[len(d.Verdicts)-1]
			last.Denied = fmt.Sprintf("rule %d has too few bytes left for the response", last.Rule)
			return d, false
		}
		r.count(d.Verdicts, Used{1, use.Request.Bytes + use.Response})
		return d, true
	}
	for _, s := range sides(r.operator, r.tenant) {
		if limit, why := exceeds(use, s.policy.Limits); why != "" {
			line := s.policy.lines[limit]
			return Decision{Verdicts: event.Verdicts{s.verdict(line, why)}, File: s.policy.File, Line: line}, false
		}
	}
	return d, true
}

// exceeds returns the key of the limit that a call exceeded, and a reason. It ignores what the log does not show: the
// time, and the bytes of the document around the result. It ignores the limit on a call's log, which cuts the log but
// refuses nothing.
func exceeds(use Use, l event.SandboxLimits) (key, why string) {
	m := use.Meter
	switch {
	case l.InputBytes > 0 && use.Sandboxed && uint64(len(use.Arguments)) > l.InputBytes:
		return "input", fmt.Sprintf("the arguments have %d bytes, and the limit is %d", len(use.Arguments), l.InputBytes)
	case l.Effects > 0 && use.Effects.Calls > l.Effects:
		return "effects", fmt.Sprintf("the call had %d effects, and the limit is %d", use.Effects.Calls, l.Effects)
	case l.EffectBytes > 0 && use.Effects.Bytes > l.EffectBytes:
		return "effect_bytes", fmt.Sprintf("the effects of the call had %d bytes, and the limit is %d", use.Effects.Bytes, l.EffectBytes)
	case l.Fuel > 0 && m.Fuel > l.Fuel:
		return "fuel", fmt.Sprintf("the call used fuel %d, and the limit is %d", m.Fuel, l.Fuel)
	case l.MemoryPages > 0 && m.PeakMemory > uint64(l.MemoryPages)*wasm.PageSize:
		return "memory", fmt.Sprintf("the call used %d bytes of memory, and the limit is %d", m.PeakMemory, uint64(l.MemoryPages)*wasm.PageSize)
	}
	return "", ""
}

// copies finds recorded exchanges that are copies. When a process dies during a call, the call that replaces it
// begins with the exchanges recorded so far. The log then has them twice, although they happened once.
type copies struct {
	key  map[string]string       // by call: the id of the first call that it replaces
	left map[string][]canon.Hash // by call: the exchanges that it may still repeat
	done map[string][]canon.Hash // by key: the exchanges of the last call that had any
}

func newCopies() *copies {
	return &copies{key: map[string]string{}, left: map[string][]canon.Hash{}, done: map[string][]canon.Hash{}}
}

// scheduled records an attempt at a call.
func (c *copies) scheduled(p event.ToolCallScheduled) {
	key := cmp.Or(p.IdempKey, p.CallID)
	c.key[p.CallID] = key
	if p.IdempKey != "" && p.Attempt <= 1 {
		c.left[p.CallID] = slices.Clone(c.done[key])
	} else {
		delete(c.left, p.CallID)
	}
	if p.Attempt > 1 {
		delete(c.done, key) // another attempt repeats nothing
	}
}

// copied records an exchange and reports whether it is a copy.
func (c *copies) copied(p event.SideEffectRecorded) bool {
	id := canon.Sum(p.Request, []byte{0}, p.Value)
	left := c.left[p.CallID]
	if len(left) > 0 && left[0] == id {
		c.left[p.CallID] = left[1:]
		return true
	}
	if len(left) > 0 { // the call took another path, so the rest are its own
		c.done[c.key[p.CallID]] = nil
		delete(c.left, p.CallID)
	}
	c.done[c.key[p.CallID]] = append(c.done[c.key[p.CallID]], id)
	return false
}
