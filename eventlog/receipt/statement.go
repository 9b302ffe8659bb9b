package receipt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
)

// The types of a receipt (spec/receipt.md, section 2).
const (
	PayloadType   = "application/vnd.in-toto+json"
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://github.com/starling-host/starling/spec/receipt/v1"
	ScheduledType = "https://github.com/starling-host/starling/spec/receipt/v1/scheduled"
)

// Names of subjects.
const (
	SubjectResult = "result"
	SubjectLeaf   = "leaf"
	SubjectInput  = "input" // of a statement of a scheduled call
)

// Statement is an in-toto Statement about one call.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject is bytes by their digest: of the text of the result, see [Text], or of the leaf of the run.
type Subject struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest"`
}

// Digest is the hexadecimal digest of some bytes by algorithm: "sha256" or "blake3".
type Digest map[string]string

// Predicate is what a statement says of the call.
type Predicate struct {
	Issuer    string   `json:"issuer"` // name of the key
	Run       Run      `json:"run"`
	Tool      Tool     `json:"tool"`
	Input     Digest   `json:"input,omitempty"` // of the canonical JSON of the arguments
	Caller    *Caller  `json:"caller,omitempty"`
	Policy    *Policy  `json:"policy,omitempty"` // absent if no policy held
	Outcome   string   `json:"outcome,omitempty"`
	ErrorType string   `json:"errorType,omitempty"` // of a call that failed
	Evidence  Evidence `json:"evidence,omitempty"`

	Attempts   uint32 `json:"attempts"`
	Requests   int    `json:"requests,omitempty"` // recorded HTTP exchanges
	Denied     int    `json:"denied,omitempty"`   // of them, by a policy
	Fuel       uint64 `json:"fuel,omitempty"`
	PeakMemory uint64 `json:"peakMemoryBytes,omitempty"`

	ScheduledAt string `json:"scheduledAt"` // RFC 3339, by the clock of the host
	CompletedAt string `json:"completedAt,omitempty"`
}

// Run is where the call is in the log.
type Run struct {
	ID           string `json:"id"`
	CallID       string `json:"callId"`
	ParentCallID string `json:"parentCallId,omitempty"` // of the call that made this one
	Scheduled    uint64 `json:"scheduled"`              // number of the event with the first attempt
	Ended        uint64 `json:"ended,omitempty"`        // number of the event with the outcome
	Events       uint64 `json:"events,omitempty"`       // of the whole run
	PrevHash     Digest `json:"prevHash,omitempty"`     // of the event before the first attempt, in a statement of a scheduled call
}

// Tool is the tool that was called.
type Tool struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest,omitempty"` // of its module
	Source string `json:"source,omitempty"` // of a tool that is no module, such as "mcp:search"
}

// Caller is who asked, see [event.Caller].
type Caller struct {
	KeyID       string   `json:"keyId,omitempty"`
	Client      string   `json:"client,omitempty"`
	Version     string   `json:"version,omitempty"`
	Session     string   `json:"session,omitempty"`
	Issuer      string   `json:"issuer,omitempty"`
	Subject     string   `json:"subject,omitempty"`
	Actor       string   `json:"actor,omitempty"`
	TraceParent string   `json:"traceparent,omitempty"`
	Delegation  []Digest `json:"delegation,omitempty"`
}

// String is [event.Caller.String].
func (c Caller) String() string {
	return event.Caller{
		KeyID: c.KeyID, Client: c.Client, Version: c.Version, Session: c.Session, Issuer: c.Issuer, Subject: c.Subject, Actor: c.Actor, Delegation: make([][]byte, len(c.Delegation)),
	}.String()
}

// Policy is the policies that held, and their decision on the call itself.
type Policy struct {
	Operator Digest `json:"operator,omitempty"`
	Tenant   Digest `json:"tenant,omitempty"`
	Decision string `json:"decision,omitempty"` // "allowed" or "denied"
}

// Evidence is what a run can show for a call.
type Evidence string

// The kinds of evidence.
const (
	Reexecutable Evidence = "reexecutable" // by a module: the result follows from module, input and recorded effects
	Recorded     Evidence = "recorded"     // by a server or a program: the result is as it was received
)

// The outcomes.
const (
	Completed = "completed"
	Failed    = "failed"
	Denied    = "denied" // by a policy, before the tool ran
)

// Options of statements. The zero value is for the owner of the run.
type Options struct {
	// LeafOnly leaves out the digests of input and result: whoever sees a receipt could guess a
	// short text from its digest.
	LeafOnly bool
	// Module returns the SHA-256 of a module by its BLAKE3-256, if it is known. Nil knows none.
	Module func(digest canon.Hash) (sha [sha256.Size]byte, ok bool)
}

// Text returns the text of a result, of which a receipt has the digest: a JSON string is the text
// that it is, and any other value its canonical JSON, with unprintable characters escaped. An MCP
// client receives it as content[0].text.
func Text(result json.RawMessage) string {
	var s string
	if json.Unmarshal(result, &s) == nil && len(result) > 0 && result[0] == '"' {
		return s
	}
	return string(display.PrintableJSON(result))
}

func sha256Of(b []byte) Digest {
	h := sha256.Sum256(b)
	return Digest{"sha256": hex.EncodeToString(h[:])}
}

func blake3Of(digest []byte) Digest {
	if len(digest) == 0 {
		return nil
	}
	return Digest{"blake3": hex.EncodeToString(digest)}
}

func timeOf(unixNano int64) string { return time.Unix(0, unixNano).UTC().Format(time.RFC3339Nano) }

// Of returns the statements of the calls of a run that has ended, in the order in which the calls
// began. The events must be a valid run, see [eventlog.Check]. Leaf is the run's leaf; the events are
// readable: of an encrypted run, they were decrypted.
func Of(events []event.Event, leaf seal.Leaf, o Options) ([]Statement, error) {
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		return nil, err
	}
	return statementsOf(work.Trusted(context.Background()), events, leaf, o)
}

// statementsOf is [Of] for events that were validated.
func statementsOf(budget *work.Budget, events []event.Event, leaf seal.Leaf, o Options) ([]Statement, error) {
	if len(events) == 0 || uint64(len(events)) != leaf.Events || !events[len(events)-1].Kind.Terminal() || events[0].RunID != leaf.RunID {
		return nil, errors.New("receipt: these are not the events of a run that has ended")
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		return nil, fmt.Errorf("receipt: event 1: %w", err)
	}
	m := &maker{work: budget, started: started, o: o, leaf: leaf, calls: map[string]*Statement{}}
	for _, ev := range events {
		err := budget.Spend(1 + len(ev.Payload)/64)
		if err == nil {
			err = m.take(ev)
		}
		if err != nil {
			return nil, fmt.Errorf("receipt: event %d: %w", ev.Seq, err)
		}
	}
	subject := Subject{SubjectLeaf, sha256Of(leaf.Marshal())}
	return lists.Map(m.all, func(s *Statement) Statement {
		s.Subject = append(s.Subject, subject)
		return *s
	}), nil
}

// maker makes the statements of one run. What RunStarted says of tools and caller is read once, and
// not again for each call.
type maker struct {
	work    *work.Budget
	started event.RunStarted
	o       Options
	leaf    seal.Leaf

	tools  map[string]Predicate // nil until a call needs it; what RunStarted says of each tool
	caller *Caller
	calls  map[string]*Statement
	all    []*Statement
}

// take adds what one event says of the calls.
func (m *maker) take(ev event.Event) error {
	payload, err := event.OfCall(ev)
	if err != nil {
		return err
	}
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		s := m.calls[p.CallID]
		if s == nil {
			if s, err = m.scheduled(ev, p); err != nil {
				return err
			}
			s.Predicate.Run.ID, s.Predicate.Run.Events = m.leaf.RunID, m.leaf.Events
			m.calls[p.CallID] = s
			m.all = append(m.all, s)
		}
		s.Predicate.Attempts = p.Attempt
	case event.ToolCallCompleted:
		if s := m.calls[p.CallID]; s != nil {
			if !m.o.LeafOnly {
				doc, err := canon.ToJSON(p.Result)
				if err != nil {
					return err
				}
				s.Subject = []Subject{{SubjectResult, sha256Of([]byte(Text(doc)))}}
			}
			s.end(ev, Completed, "", p.Meter)
		}
	case event.ToolCallFailed:
		if s := m.calls[p.CallID]; s != nil {
			s.end(ev, Failed, p.ErrorType, p.Meter)
		}
	case event.SideEffectRecorded:
		if s := m.calls[p.CallID]; s != nil {
			return s.effect(p)
		}
	}
	return nil
}

// scheduled begins the statement of a call.
func (m *maker) scheduled(ev event.Event, p event.ToolCallScheduled) (*Statement, error) {
	if m.tools == nil {
		if err := m.read(); err != nil {
			return nil, err
		}
	}
	tool := m.tools[p.ToolName]
	s := &Statement{Type: StatementType, PredicateType: PredicateType, Subject: []Subject{}}
	s.Predicate = Predicate{
		Run:  Run{ID: ev.RunID, CallID: p.CallID, ParentCallID: p.ParentID, Scheduled: ev.Seq},
		Tool: Tool{Name: p.ToolName, Digest: tool.Tool.Digest, Source: tool.Tool.Source}, Evidence: cmp.Or(tool.Evidence, Recorded),
		Caller: m.caller, Attempts: p.Attempt, ScheduledAt: timeOf(ev.Timestamp),
	}
	if tool.Policy != nil {
		policy := *tool.Policy
		s.Predicate.Policy = &policy // the decision is that of the call
	}
	if !m.o.LeafOnly {
		doc, err := canon.ToJSON(p.Args)
		if err != nil {
			return nil, err
		}
		s.Predicate.Input = sha256Of(doc)
	}
	return s, nil
}

// read reads what RunStarted says of the tools and the caller.
func (m *maker) read() error {
	m.tools = map[string]Predicate{}
	for _, ref := range m.started.ToolSchemas {
		if err := m.work.Spend(1); err != nil {
			return err
		}
		p := m.tools[ref.Name]
		p.tool(ref, m.o)
		m.tools[ref.Name] = p
	}
	if c := m.started.Caller; c != nil {
		m.caller = &Caller{
			KeyID: c.KeyID, Client: c.Client, Version: c.Version, Session: c.Session, Issuer: c.Issuer, Subject: c.Subject, Actor: c.Actor, TraceParent: c.TraceParent,
			Delegation: lists.Map(c.Delegation, func(d []byte) Digest { return Digest{"sha256": hex.EncodeToString(d)} }),
		}
	}
	return nil
}

// tool fills in what the run says of the tool.
func (p *Predicate) tool(ref event.ToolSchemaRef, o Options) {
	p.Tool.Source = ref.Source
	if ref.Sandbox == nil {
		return
	}
	p.Evidence, p.Tool.Digest = Reexecutable, blake3Of(ref.Sandbox.Module)
	if o.Module != nil && len(ref.Sandbox.Module) == event.HashSize {
		if sum, ok := o.Module(canon.Hash(ref.Sandbox.Module)); ok {
			p.Tool.Digest["sha256"] = hex.EncodeToString(sum[:])
		}
	}
	if held := ref.Sandbox.Policy; held != nil {
		p.Policy = &Policy{Operator: blake3Of(held.Operator), Tenant: blake3Of(held.Tenant), Decision: "allowed"}
	}
}

// effect counts an effect of the call, and takes the policies' decision.
func (s *Statement) effect(p event.SideEffectRecorded) error {
	var verdicts event.Verdicts
	switch {
	case p.Name == event.EffectPolicy:
		if err := canon.Unmarshal(p.Value, &verdicts); err != nil {
			return err
		}
	case event.IsHTTP(p.Request) && p.Error == nil:
		var x event.Exchange
		if err := canon.Unmarshal(p.Value, &x); err != nil {
			return err
		}
		verdicts = x.Decision
		s.Predicate.Requests++
	}
	denied := slices.ContainsFunc(verdicts, func(v event.Verdict) bool { return v.Denied != "" })
	switch {
	case p.Name == event.EffectPolicy && s.Predicate.Policy == nil && len(verdicts) > 0:
		s.Predicate.Policy = &Policy{Decision: "allowed"}
		for _, v := range verdicts {
			switch v.Side {
			case "operator":
				s.Predicate.Policy.Operator = blake3Of(v.Policy)
			case "tenant":
				s.Predicate.Policy.Tenant = blake3Of(v.Policy)
			}
		}
		fallthrough
	case p.Name == event.EffectPolicy && denied:
		if denied {
			s.Predicate.Policy.Decision = "denied"
		}
	case denied:
		s.Predicate.Denied++
	}
	return nil
}

// end takes the outcome of an attempt. That of the last one counts.
func (s *Statement) end(ev event.Event, outcome, errorType string, m event.Meter) {
	p := &s.Predicate
	if p.Policy != nil && p.Policy.Decision == "denied" && outcome == Failed {
		outcome = Denied
	}
	p.Outcome, p.ErrorType, p.Run.Ended, p.CompletedAt = outcome, errorType, ev.Seq, timeOf(ev.Timestamp)
	p.Fuel, p.PeakMemory = m.Fuel, m.PeakMemory
}

// check returns what keeps a statement from being one of this version.
func (s Statement) check() error {
	p := s.Predicate
	switch {
	case s.Type != StatementType:
		return fmt.Errorf("receipt: the statement is of type %.60q", s.Type)
	case s.PredicateType == ScheduledType:
		if len(s.Subject) != 1 || s.Subject[0].Name != SubjectInput || p.Outcome != "" || p.Run.Events != 0 {
			return errors.New("receipt: this is not a statement of a scheduled call")
		}
	case s.PredicateType != PredicateType:
		return fmt.Errorf("receipt: the predicate is of type %.80q", s.PredicateType)
	case len(s.Subject) == 0 || len(s.Subject) > 2 || s.Subject[len(s.Subject)-1].Name != SubjectLeaf || len(s.Subject) == 2 && s.Subject[0].Name != SubjectResult:
		return errors.New("receipt: the subjects are not a result and a leaf, or a leaf")
	case p.Outcome == "" || p.Run.ID == "" || p.Run.Events < 2 || p.Run.Ended > p.Run.Events || p.Run.Scheduled == 0:
		return errors.New("receipt: the statement names no call of a run that has ended")
	case len(s.Subject) == 2 && p.Outcome != Completed:
		return fmt.Errorf("receipt: a call that %s has no result", p.Outcome)
	}
	for _, subject := range s.Subject {
		if digest, err := hex.DecodeString(subject.Digest["sha256"]); err != nil || len(digest) != sha256.Size || len(subject.Digest) != 1 {
			return fmt.Errorf("receipt: the subject %q has no SHA-256", subject.Name)
		}
	}
	return nil
}

// Result reports whether text is the text of the result that the statement is about, see [Text].
func (s Statement) Result(text []byte) bool {
	for _, subject := range s.Subject {
		if subject.Name == SubjectResult {
			return subject.Digest["sha256"] == sha256Of(text)["sha256"]
		}
	}
	return false
}

// String describes the call in one line.
func (s Statement) String() string {
	p := s.Predicate
	text := p.Tool.Name + " " + p.Outcome
	if p.ErrorType != "" {
		text += " (" + p.ErrorType + ")"
	}
	if p.Outcome == "" {
		text = p.Tool.Name + " scheduled"
	}
	return strings.Join([]string{text, "run " + p.Run.ID, "call " + p.Run.CallID, "event " + strconv.FormatUint(max(p.Run.Ended, p.Run.Scheduled), 10)}, ", ")
}
