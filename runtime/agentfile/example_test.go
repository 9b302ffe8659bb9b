package agentfile_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// loader loads modules into an engine of this process, and stores them where the runs are
// recorded, so that these can be replayed from there.
type loader struct {
	engine guest.Engine
	store  eventlog.ModuleStore
}

func (l loader) LoadModule(ctx context.Context, m agentfile.Module) ([]tool.Tool, func() error, error) {
	found, err := guest.Find(ctx, m.Path)
	if err != nil {
		return nil, nil, err
	}
	if _, err := l.store.PutModule(ctx, found.Wasm); err != nil {
		return nil, nil, err
	}
	rules := egress.Rules{Private: m.AllowPrivate}
	for _, host := range m.AllowHosts {
		rule, err := egress.ParseRule(host)
		if err != nil {
			return nil, nil, err
		}
		rules.Allow = append(rules.Allow, rule)
	}
	module, err := guest.Load(ctx, l.engine, found.Wasm, guest.Options{
		Limits: sandbox.Limits(m.Limits), Egress: egress.New(egress.Config{Authorize: rules}), Allow: m.AllowHosts, Name: found.Name,
	})
	if err != nil {
		return nil, nil, err
	}
	var tools []tool.Tool
	for _, t := range module.Tools() {
		tools = append(tools, t)
	}
	return tools, func() error { return module.Close(context.WithoutCancel(ctx)) }, nil
}

// TestExample runs the agent of examples/agent, of which nothing is faked but the
// model, which is a script of its own.
func TestExample(t *testing.T) {
	ctx := t.Context()
	f, err := agentfile.Load("../../examples/agent/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	model, err := f.Provider(ctx, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(ctx)
	log := store.Memory()
	box, err := f.OpenTools(ctx, loader{guest.Inline(engine), log}, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}()
	var names []string
	for _, use := range box.Tools {
		names = append(names, use.Name())
	}
	if diff := cmp.Diff([]string{"dice", "house_account", "read_file"}, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	a := f.Agent(model, box)
	a.Log = log
	run(t, a, f)
}

func run(t *testing.T, a *agent.Agent, f *agentfile.File) {
	t.Helper()
	ctx, err := tool.WithVariablesJSON(t.Context(), f.Variables)
	if err != nil {
		t.Fatal(err)
	}
	result, err := a.Run(ctx, "Let us play.")
	if err != nil {
		t.Fatal(err)
	}
	events, err := a.Log.Read(ctx, result.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if err := eventlog.Validate(events); err != nil {
		t.Error(err)
	}
	if _, err := a.Replay(ctx, events, agent.ReplayOptions{}); err != nil {
		t.Errorf("replay: %v", err)
	}
	var called []string
	answer := ""
	for _, ev := range events {
		switch ev.Kind {
		case event.KindAssistantMessageCompleted:
			said, err := ev.AsAssistantMessageCompleted()
			if err != nil {
				t.Fatal(err)
			}
			answer = said.Text
			for _, use := range said.ToolUses {
				called = append(called, use.ToolName)
			}
		case event.KindToolCallFailed:
			failed, _ := ev.AsToolCallFailed()
			t.Errorf("a call failed: %s", failed.Error)
		}
	}
	if diff := cmp.Diff([]string{"read_file", "dice"}, called); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if last := events[len(events)-1]; last.Kind != event.KindRunCompleted || !strings.Contains(answer, "house") {
		t.Errorf("the run ended with %v, and %q", last.Kind, answer)
	}
}
