package agenttest

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/agent"
)

// AssertReplayMatches fails the test unless the agent makes the recorded run again,
// byte for byte.
func AssertReplayMatches(t testing.TB, log eventlog.EventLog, runID string, a *agent.Agent) {
	t.Helper()
	if err := agent.Verify(context.Background(), log, runID, a); err != nil {
		t.Errorf("the replay of run %s: %v", runID, err)
	}
}

// AssertReplayDiverges fails the test unless the agent differs from the recorded
// run, and returns where.
func AssertReplayDiverges(t testing.TB, log eventlog.EventLog, runID string, a *agent.Agent) *agent.Divergence {
	t.Helper()
	err := agent.Verify(context.Background(), log, runID, a)
	var d *agent.Divergence
	if !errors.As(err, &d) {
		t.Errorf("the replay of run %s: %v, want a divergence", runID, err)
	}
	return d
}

// AppendRunStarted begins a run by hand: it appends its first event, with the
// fields that are not set as an agent without tools would set them, and returns
// the event, which the next one chains to.
func AppendRunStarted(t testing.TB, log eventlog.EventLog, runID string, started event.RunStarted) event.Event {
	t.Helper()
	started.SchemaVersion = event.SchemaVersion
	if started.ToolSchemas == nil {
		started.ToolSchemas = []event.ToolSchemaRef{}
	}
	payload, err := event.EncodePayload(started)
	if err != nil {
		t.Fatal(err)
	}
	ev := event.Event{RunID: runID, Seq: 1, Timestamp: 1, Kind: event.KindRunStarted, Payload: payload}
	ctx := context.Background()
	if err := log.Append(ctx, runID, ev); err != nil {
		t.Fatal(err)
	}
	if err := log.Sync(ctx, runID); err != nil {
		t.Fatal(err)
	}
	return ev
}
