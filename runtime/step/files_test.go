package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
)

// filer is a sandboxed tool. Its input is what it does with its files, from left to right: w writes, c
// calls the tool "inner" and F the function "function", f fails.
type filer struct {
	native
	finds bool
}

func (filer) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func (f filer) FindsFiles() bool { return f.finds }

// written returns the root of files after another write.
func written(root []byte) []byte {
	next := canon.Sum(root)
	return next[:]
}

func (f filer) ExecuteParsed(ctx context.Context, a *step.Attempt, input *canon.Doc) (*canon.Doc, error) {
	var root []byte
	if files := a.Info(ctx).Workspace; files != nil {
		root = files.Root
	}
	a.SetProbe(func() step.Meter { return step.Meter{Workspace: root} })
	for _, what := range input.JSON {
		switch what {
		case 'w':
			root = written(root)
		case 'f':
			return nil, errors.New("no")
		case 'c', 'F':
			name := map[byte]string{'c': "inner", 'F': "function"}[what]
			if _, err := step.CallTool(ctx, step.ToolCall{Name: name, Args: json.RawMessage(`"-"`)}); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// filing returns a configuration with tools, and files that can be written or only read.
func filing(writable bool) (cfg step.Config, root []byte) {
	sum := canon.Sum([]byte("tree"))
	function := newTool("function", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil })
	return step.Config{
		Tools:     step.NewRegistry(filer{native{name: "tool"}, true}, filer{native{name: "inner"}, true}, filer{native{name: "blind"}, false}, function),
		Workspace: &event.Workspace{Root: sum[:], Mounts: []event.Mount{{At: "/fixed"}, {At: "/workspace", Writable: writable}}},
	}, sum[:]
}

// calls makes turns, each of which is calls at the same time, such as "tool w".
func calls(turns ...[]string) body {
	return func(ctx context.Context) error {
		for _, turn := range turns {
			var all []step.ToolCall
			for _, call := range turn {
				var name, input string
				fmt.Sscan(call, &name, &input)
				all = append(all, step.ToolCall{TurnID: "t", Name: name, Args: fmt.Appendf(nil, "%q", input)})
			}
			if _, err := step.CallTools(ctx, all); err != nil {
				return err
			}
		}
		return nil
	}
}

// fileEvents tells scheduled calls and outcomes, with how often the files were written: * stands for files that
// can only be read, and - for none.
func fileEvents(t *testing.T, events []event.Event, root []byte) (list []string) {
	t.Helper()
	name := map[string]string{}
	version := func(of []byte) string {
		at, n := root, 0
		for ; n < 20 && !slices.Equal(at, of); n++ {
			at = written(at)
		}
		return fmt.Sprint(n)
	}
	for _, e := range events {
		payload, err := event.OfCall(e)
		if err != nil {
			t.Fatal(err)
		}
		has := "-"
		switch p := payload.(type) {
		case event.ToolCallScheduled:
			name[p.CallID] = p.ToolName
			if p.Workspace != nil {
				if has = version(p.Workspace.Root); !slices.ContainsFunc(p.Workspace.Mounts, func(m event.Mount) bool { return m.Writable }) {
					has += "*"
				}
			}
			list = append(list, p.ToolName+" "+has)
		case event.ToolCallCompleted:
			if p.Meter.Workspace != nil {
				has = version(p.Meter.Workspace)
			}
			list = append(list, name[p.CallID]+" = "+has)
		case event.ToolCallFailed:
			if p.Meter.Workspace != nil {
				has = version(p.Meter.Workspace)
			}
			list = append(list, name[p.CallID]+" failed "+has)
		}
	}
	return list
}

// TestFilesOfCalls: a call of a tool that looks for files gets those of the run as the call before has left
// them, one that can change them waits for its turn, and a call within a call may only read. A replay takes
// nothing but the first files from the record.
func TestFilesOfCalls(t *testing.T) {
	turn := func(calls ...string) []string { return calls }
	for name, c := range map[string]struct {
		do   body
		want []string
	}{
		"one after another":  {calls(turn("tool w"), turn("tool ww"), turn("tool -")), []string{"tool 0", "tool = 1", "tool 1", "tool = 3", "tool 3", "tool = 3"}},
		"at the same time":   {calls(turn("tool w", "tool w")), []string{"tool 0", "tool = 1", "tool 1", "tool = 2"}},
		"among others":       {calls(turn("blind -", "tool w", "function -", "tool w")), []string{"blind -", "blind = -", "tool 0", "tool = 1", "function -", "function = -", "tool 1", "tool = 2"}},
		"a failure":          {calls(turn("tool w", "tool wf", "tool w")), []string{"tool 0", "tool = 1", "tool 1", "tool failed -", "tool 1", "tool = 2"}},
		"calls within calls": {calls(turn("tool wcF"), turn("tool cw"), turn("tool wcf"), turn("blind c")), []string{"tool 0", "inner 0*", "inner = 0", "function -", "function = -", "tool = 1", "tool 1", "inner 1*", "inner = 1", "tool = 2", "tool 2", "inner 2*", "inner = 2", "tool failed -", "blind -", "inner -", "inner = -", "blind = -"}},
		"none":               {calls(turn("function -", "missing -")), []string{"function -", "missing -", "function = -", "missing failed -"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, root := filing(true)
			if cfg.MaxParallelTools = 4; name == "none" {
				cfg.MaxParallelTools = 1
			}
			events := recordRun(t, cfg, c.do)
			if diff := cmp.Diff(c.want, fileEvents(t, events, root)); diff != "" {
				t.Error(diff)
			}
			cfg.Workspace = nil
			mustReplay(t, events, cfg, c.do)
		})
	}
	cfg, root := filing(false)
	cfg.MaxParallelTools = 1
	do := calls(turn("tool -", "function -", "tool -"))
	events := recordRun(t, cfg, do)
	if diff := cmp.Diff([]string{"tool 0*", "function -", "tool 0*", "tool = 0", "function = -", "tool = 0"}, fileEvents(t, events, root)); diff != "" {
		t.Errorf("files that can only be read: %s", diff)
	}
	mustReplay(t, events, cfg, do)
}

// TestReplayComputesTheFilesOfLaterCalls: a record that gives the second call other files than the first one has
// left differs, and so does one whose first call leaves others.
func TestReplayComputesTheFilesOfLaterCalls(t *testing.T) {
	cfg, _ := filing(true)
	do := calls([]string{"tool w"}, []string{"tool w"})
	events := recordRun(t, cfg, do)
	other := written([]byte("other"))
	for seq, change := range map[uint64]func(any) event.Payload{
		3: func(p any) event.Payload {
			completed := p.(event.ToolCallCompleted)
			completed.Workspace = other
			return completed
		},
		4: func(p any) event.Payload {
			scheduled := p.(event.ToolCallScheduled)
			scheduled.Workspace = &event.Workspace{Root: other, Mounts: scheduled.Workspace.Mounts}
			return scheduled
		},
	} {
		forged := slices.Clone(events)
		payload, err := event.OfCall(forged[seq-1])
		if err != nil {
			t.Fatal(err)
		}
		if forged[seq-1].Payload, err = event.EncodePayload(change(payload)); err != nil {
			t.Fatal(err)
		}
		forged = logtest.Relink(forged)
		mustDiffer(t, forged, cfg, do, seq, step.MismatchPayload)
	}
}

// TestAnotherProcessHasTheFiles: a process that goes on with a run does not have its files, and the log does:
// as they were given to a call that is made anew, or as the last one has left them.
func TestAnotherProcessHasTheFiles(t *testing.T) {
	cfg, root := filing(true)
	all := recordRun(t, cfg, calls([]string{"tool wc"}, []string{"tool w"}))
	for n, want := range map[int]string{2: "tool 0", 4: "tool 0", len(all) - 3: "tool 1", len(all) - 1: "tool 2"} {
		now := cfg
		now.Log, now.RunID, now.Workspace, now.Earlier = store.Memory(), "run", nil, all[:n]
		for _, e := range now.Earlier {
			if err := now.Log.Append(t.Context(), "run", e); err != nil {
				t.Fatal(err)
			}
		}
		again := step.ToolCall{Name: "tool", TurnID: "t", Args: json.RawMessage(`"wc"`)}
		if scheduled, err := all[1].AsToolCallScheduled(); n <= 4 && err == nil {
			again.IdempKey = scheduled.CallID
		}
		if _, err := step.CallTool(step.WithContext(t.Context(), step.MustNewContext(now)), again); err != nil {
			t.Fatal(err)
		}
		events, err := now.Log.Read(t.Context(), "run")
		if err != nil {
			t.Fatal(err)
		}
		if got := fileEvents(t, events[n:], root); got[0] != want {
			t.Errorf("after %d events: %q, want %s", n, got, want)
		}
	}
}

// TestEarlierCommitsGaveFilesToOtherTools: they gave files to each sandboxed tool, and none to calls within calls.
func TestEarlierCommitsGaveFilesToOtherTools(t *testing.T) {
	cfg, _ := filing(true)
	do := calls([]string{"blind c"})
	events := recordRun(t, step.Config{Workspace: cfg.Workspace, Tools: step.NewRegistry(filer{native{name: "blind"}, true}, filer{native{name: "inner"}, false})}, do)
	if got, err := events[1].AsToolCallScheduled(); err != nil || got.Workspace == nil {
		t.Fatalf("%+v %v", got, err)
	}
	mustReplay(t, events, cfg, do)
}

// TestEachBeginningOfAnAgentsRunReplays: RunStarted has the files of an agent. So a replay of a run that was cut
// off, before its first call with files as well, makes the calls in the order of the live run.
func TestEachBeginningOfAnAgentsRunReplays(t *testing.T) {
	cfg, root := filing(true)
	agent := func(ctx context.Context, c *step.Context, given *event.Workspace) error {
		ctx = step.WithContext(ctx, c)
		started := event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "test", ToolSchemas: []event.ToolSchemaRef{}, Workspace: given}
		if err := step.Emit(ctx, c, event.KindRunStarted, started); err != nil {
			return err
		}
		if err := calls([]string{"blind F", "tool w", "tool -"}, []string{"tool w"})(ctx); err != nil {
			return err
		}
		return step.Emit(ctx, c, event.KindRunCompleted, event.RunCompleted{})
	}
	live := cfg
	live.Log, live.RunID = store.Memory(), "run"
	if err := agent(t.Context(), step.MustNewContext(live), cfg.Workspace); err != nil {
		t.Fatal(err)
	}
	events, err := live.Log.Read(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"blind -", "function -", "function = -", "blind = -", "tool 0", "tool = 1", "tool 1", "tool = 1", "tool 1", "tool = 2"}
	if diff := cmp.Diff(want, fileEvents(t, events, root)); diff != "" {
		t.Error(diff)
	}
	for n := 1; n <= len(events); n++ {
		again := cfg
		again.Workspace, again.Mode, again.Recorded, again.RunID = nil, step.ModeReplay, events[:n], "run"
		c := step.MustNewContext(again)
		err := agent(t.Context(), c, nil)
		if wrong := c.Finish(); wrong != nil || (err == nil) != (n == len(events)) || err != nil && !errors.Is(err, step.ErrRecordingEnded) {
			t.Errorf("the first %d events: %v, %v", n, err, wrong)
		}
	}
	now := cfg // another process has other files, and the run keeps its own
	now.Log, now.RunID, now.Earlier, now.Workspace = store.Memory(), "run", events[:1], &event.Workspace{Root: written(root), Mounts: cfg.Workspace.Mounts}
	if err := now.Log.Append(t.Context(), "run", events[0]); err != nil {
		t.Fatal(err)
	}
	if err := calls([]string{"tool -"})(step.WithContext(t.Context(), step.MustNewContext(now))); err != nil {
		t.Fatal(err)
	}
	if all, err := now.Log.Read(t.Context(), "run"); err != nil || fileEvents(t, all, root)[0] != "tool 0" {
		t.Errorf("%v %v", fileEvents(t, all, root), err)
	}
}
