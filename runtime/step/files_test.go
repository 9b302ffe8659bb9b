package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
)

// reader is a sandboxed tool that leaves the files that it is given, and then calls another tool or
// fails, as its input says.
type reader struct{ native }

func (reader) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func (reader) ExecuteParsed(ctx context.Context, a *step.Attempt, input *canon.Doc) (*canon.Doc, error) {
	files := a.Info(ctx).Workspace
	a.SetProbe(func() (m step.Meter) {
		if files != nil {
			m.Workspace = files.Root
		}
		return m
	})
	switch what := string(input.JSON); what {
	case `"fail"`:
		return nil, errors.New("no")
	case `"reader"`, `"function"`:
		_, err := step.CallTool(ctx, step.ToolCall{Name: what[1 : len(what)-1], Args: json.RawMessage(`"nothing"`)})
		return nil, err
	}
	return nil, nil
}

// TestFilesOfCalls: a call of a sandboxed tool is given the files of the run, unless another call made it,
// and a call that completes leaves some. A replay takes them from the record.
func TestFilesOfCalls(t *testing.T) {
	root := canon.Sum([]byte("tree"))
	given := &event.Workspace{Root: root[:], Mounts: []event.Mount{{At: "/workspace"}}}
	function := newTool("function", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil })
	cfg := step.Config{Tools: step.NewRegistry(reader{native{name: "reader"}}, function)}
	for _, c := range []struct {
		tool, input string
		want        []string // of each scheduled call and each outcome, whether it has files
	}{
		{"reader", `"nothing"`, []string{"given", "left"}},
		{"reader", `"fail"`, []string{"given", "-"}},
		{"reader", `"reader"`, []string{"given", "-", "-", "left"}},
		{"reader", `"function"`, []string{"given", "-", "-", "left"}},
		{"function", `"nothing"`, []string{"-", "-"}},
		{"missing", `"nothing"`, []string{"-", "-"}},
	} {
		with := cfg
		with.Workspace = given
		events := recordRun(t, with, callOnce(c.tool, c.input))
		var got []string
		for _, e := range events {
			has := "-"
			switch payload, _ := event.OfCall(e); p := payload.(type) {
			case event.ToolCallScheduled:
				if p.Workspace != nil {
					has = "given"
				}
			case event.ToolCallCompleted:
				if p.Meter.Workspace != nil {
					has = "left"
				}
			case event.ToolCallFailed:
				if p.Meter.Workspace != nil {
					has = "left"
				}
			default:
				continue
			}
			got = append(got, has)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s: %s", c.tool, c.input, diff)
		}
		mustReplay(t, events, cfg, callOnce(c.tool, c.input))
	}
}

// TestAReplacedCallKeepsItsFiles: a process that makes a call anew does not have its files, and the log does.
func TestAReplacedCallKeepsItsFiles(t *testing.T) {
	root := canon.Sum([]byte("tree"))
	given := &event.Workspace{Root: root[:], Mounts: []event.Mount{{At: "/workspace"}}}
	log := &syncLog{MemoryLog: store.Memory()}
	cfg := step.Config{Log: log, RunID: "run", Workspace: given, Tools: step.NewRegistry(reader{native{name: "reader"}})}
	if err := drive(t.Context(), step.MustNewContext(cfg), callOnce("reader", `"nothing"`)); err != nil {
		t.Fatal(err)
	}
	earlier := log.all[:2] // the call was scheduled, and its process died
	scheduled, err := earlier[1].AsToolCallScheduled()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log, cfg.Workspace, cfg.Earlier = store.Memory(), nil, earlier
	for _, e := range earlier {
		if err := cfg.Log.Append(t.Context(), "run", e); err != nil {
			t.Fatal(err)
		}
	}
	c := step.MustNewContext(cfg)
	ctx := step.WithContext(t.Context(), c)
	if _, err := step.CallTool(ctx, step.ToolCall{Name: "reader", TurnID: scheduled.TurnID, Args: json.RawMessage(`"nothing"`), IdempKey: scheduled.CallID}); err != nil {
		t.Fatal(err)
	}
	events, err := cfg.Log.Read(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	again, err := events[2].AsToolCallScheduled()
	if err != nil || again.Workspace == nil || canon.Hash(again.Workspace.Root) != root {
		t.Errorf("%+v, %v", again, err)
	}
}
