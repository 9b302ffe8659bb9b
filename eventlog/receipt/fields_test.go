package receipt_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
)

// TestFieldsOfStatements compares whole statements, of a run in which no two values are alike, and
// requires that some statement has each field.
func TestFieldsOfStatements(t *testing.T) {
	module, operator, tenant, mandate := canon.Sum([]byte("module")), canon.Sum([]byte("operator")), canon.Sum([]byte("tenant")), canon.Sum([]byte("mandate"))
	other, later := canon.Sum([]byte("other")), canon.Sum([]byte("later"))
	blake := func(h canon.Hash) receipt.Digest { return receipt.Digest{"blake3": h.String()} }
	sha := func(text string) receipt.Digest {
		sum := sha256.Sum256([]byte(text))
		return receipt.Digest{"sha256": hex.EncodeToString(sum[:])}
	}
	c := &logtest.Chain{RunID: "run", Clock: 1_700_000_000_000_000_000}
	exchange := func(call string, verdicts ...event.Verdict) event.Event {
		return c.Next(event.SideEffectRecorded{Name: "GET https://a.example/", CallID: call, Request: []byte("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
			Value: encode(t, event.Exchange{Status: -1, Text: "x", Decision: verdicts})})
	}
	decided := func(call string, verdicts ...event.Verdict) event.Event {
		return c.Next(event.SideEffectRecorded{Name: event.EffectPolicy, CallID: call, Value: encode(t, event.Verdicts(verdicts))})
	}
	side := func(side string, policy canon.Hash, denied string) event.Verdict {
		return event.Verdict{Side: side, Policy: policy[:], Denied: denied}
	}
	schedule := func(call, parent, tool string, attempt uint32) event.Event {
		return c.Next(event.ToolCallScheduled{CallID: call, TurnID: "direct", ToolName: tool, Args: raw(t, `{"call":"`+call+`"}`), Attempt: attempt, ParentID: parent})
	}
	fail := func(call, kind string, attempt uint32, fuel uint64) event.Event {
		return c.Next(event.ToolCallFailed{CallID: call, Error: "no", ErrorType: kind, Attempt: attempt, Meter: event.Meter{Fuel: fuel, PeakMemory: fuel + 1}})
	}
	ref := func(name string, held *event.PolicyRef, digest canon.Hash) event.ToolSchemaRef {
		return event.ToolSchemaRef{Name: name, SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:], ABI: "starling:v1", CostTable: 1, Policy: held}}
	}
	events := []event.Event{
		c.Next(event.RunStarted{SchemaVersion: 1, Goal: "call",
			Caller: &event.Caller{KeyID: "key", Client: "client", Version: "version", Session: "session", Issuer: "issuer", Subject: "subject", Actor: "actor",
				TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Delegation: [][]byte{mandate[:]}},
			ToolSchemas: []event.ToolSchemaRef{
				ref("held", &event.PolicyRef{Operator: operator[:], Tenant: tenant[:]}, module), ref("free", nil, other), {Name: "search", SchemaHash: make([]byte, 32), Source: "mcp:search"},
			}}),
		schedule("c1", "", "held", 1), // event 2
		exchange("c1", side("operator", operator, ""), side("tenant", tenant, "no rule")),
		exchange("c1", side("operator", operator, "no rule"), side("tenant", tenant, "")),
		exchange("c1", side("operator", operator, ""), side("tenant", tenant, "")),
		schedule("c2", "c1", "free", 1), // event 6
		decided("c2", side("operator", operator, ""), side("tenant", later, "not named")),
		exchange("c2"),
		fail("c2", event.ErrorTool, 1, 20),
		schedule("c3", "", "free", 1), // event 10
		decided("c3", side("operator", operator, "not named"), side("tenant", tenant, "")),
		fail("c3", event.ErrorTool, 1, 30),
		schedule("c4", "c1", "search", 1), // event 13
		fail("c4", event.ErrorTool, 1, 40),
		schedule("c4", "c1", "search", 2),
		fail("c4", event.ErrorFuel, 2, 41),
		c.Next(event.ToolCallCompleted{CallID: "c1", Result: raw(t, `{"rolled":4}`), Attempt: 1, Meter: event.Meter{Fuel: 12, PeakMemory: 65536}}),
		schedule("c5", "", "free", 1), // event 18
		decided("c5", side("tenant", tenant, "")),
		c.Next(event.ToolCallCompleted{CallID: "c5", Result: raw(t, `"five"`), Attempt: 1}),
		schedule("c6", "", "free", 1), // event 21
		decided("c6"),
		c.Next(event.ToolCallCompleted{CallID: "c6", Result: raw(t, `6`), Attempt: 1}),
	}
	events = append(events, c.Complete())
	leaf := must(seal.LeafOf(events[len(events)-1], events[len(events)-1].Hash()))
	at := func(seq int) string {
		return fmt.Sprintf("2023-11-14T22:13:20.%sZ", strings.TrimRight(fmt.Sprintf("%03d", seq-1), "0"))
	}
	caller := &receipt.Caller{KeyID: "key", Client: "client", Version: "version", Session: "session", Issuer: "issuer", Subject: "subject", Actor: "actor",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Delegation: []receipt.Digest{{"sha256": mandate.String()}}}
	statement := func(call, parent, result string, scheduled, ended int, p receipt.Predicate) receipt.Statement {
		p.Run = receipt.Run{ID: "run", CallID: call, ParentCallID: parent, Scheduled: uint64(scheduled), Ended: uint64(ended), Events: uint64(len(events))}
		p.Input, p.Caller, p.ScheduledAt, p.CompletedAt = sha(`{"call":"`+call+`"}`), caller, at(scheduled), at(ended)
		s := receipt.Statement{Type: receipt.StatementType, PredicateType: receipt.PredicateType, Subject: []receipt.Subject{}, Predicate: p}
		if result != "" {
			s.Subject = append(s.Subject, receipt.Subject{Name: receipt.SubjectResult, Digest: sha(result)})
		}
		s.Subject = append(s.Subject, receipt.Subject{Name: receipt.SubjectLeaf, Digest: sha(string(leaf.Marshal()))})
		return s
	}
	held := receipt.Tool{Name: "held", Digest: receipt.Digest{"blake3": module.String(), "sha256": sha("module")["sha256"]}}
	free, search := receipt.Tool{Name: "free", Digest: blake(other)}, receipt.Tool{Name: "search", Source: "mcp:search"}
	want := []receipt.Statement{
		statement("c1", "", `{"rolled":4}`, 2, 17, receipt.Predicate{Tool: held, Policy: &receipt.Policy{Operator: blake(operator), Tenant: blake(tenant), Decision: "allowed"},
			Outcome: receipt.Completed, Evidence: receipt.Reexecutable, Attempts: 1, Requests: 3, Denied: 2, Fuel: 12, PeakMemory: 65536}),
		statement("c2", "c1", "", 6, 9, receipt.Predicate{Tool: free, Policy: &receipt.Policy{Operator: blake(operator), Tenant: blake(later), Decision: "denied"},
			Outcome: receipt.Denied, ErrorType: event.ErrorTool, Evidence: receipt.Reexecutable, Attempts: 1, Requests: 1, Fuel: 20, PeakMemory: 21}),
		statement("c3", "", "", 10, 12, receipt.Predicate{Tool: free, Policy: &receipt.Policy{Operator: blake(operator), Tenant: blake(tenant), Decision: "denied"},
			Outcome: receipt.Denied, ErrorType: event.ErrorTool, Evidence: receipt.Reexecutable, Attempts: 1, Fuel: 30, PeakMemory: 31}),
		statement("c4", "c1", "", 13, 16, receipt.Predicate{Tool: search, Outcome: receipt.Failed, ErrorType: event.ErrorFuel, Evidence: receipt.Recorded, Attempts: 2, Fuel: 41, PeakMemory: 42}),
		statement("c5", "", "five", 18, 20, receipt.Predicate{Tool: free, Policy: &receipt.Policy{Tenant: blake(tenant), Decision: "allowed"},
			Outcome: receipt.Completed, Evidence: receipt.Reexecutable, Attempts: 1}),
		statement("c6", "", "6", 21, 23, receipt.Predicate{Tool: free, Outcome: receipt.Completed, Evidence: receipt.Reexecutable, Attempts: 1}),
	}
	sums := func(digest canon.Hash) ([sha256.Size]byte, bool) {
		return sha256.Sum256([]byte("module")), digest == module
	}
	got, err := receipt.Of(events, leaf, receipt.Options{Module: sums})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	elsewhere := map[string]bool{"Statement.Predicate.Issuer": true, "Statement.Predicate.Run.PrevHash": true} // of a signature, and of a scheduled call
	var fields func(name string, at []reflect.Value)
	fields = func(name string, at []reflect.Value) {
		var set []reflect.Value
		for _, v := range at {
			if v.Kind() == reflect.Pointer {
				v = v.Elem()
			}
			if v.IsValid() && !v.IsZero() {
				set = append(set, v)
			}
		}
		if len(set) == 0 && !elsewhere[name] {
			t.Errorf("no statement has %s", name)
		}
		for i := 0; len(set) > 0 && set[0].Kind() == reflect.Struct && i < set[0].NumField(); i++ {
			var inner []reflect.Value
			for _, v := range set {
				inner = append(inner, v.Field(i))
			}
			fields(name+"."+set[0].Type().Field(i).Name, inner)
		}
	}
	var all []reflect.Value
	for _, s := range want {
		all = append(all, reflect.ValueOf(s))
	}
	fields("Statement", all)
}
