package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// oracle loads the tool of the tests, which may ask the server.
func oracle(t *testing.T, server *httptest.Server) tool.Tool { return toolsOf(t, server)[0] }

// toolsOf loads both tools of the module: the oracle and the messenger.
func toolsOf(t *testing.T, server *httptest.Server) []tool.Tool {
	t.Helper()
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	rule, err := egress.ParseRule(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	module, err := guest.Load(t.Context(), guest.Inline(newEngine(t)), source.Wasm, guest.Options{
		Egress: egress.New(egress.Config{Authorize: egress.Rules{Allow: []egress.Rule{rule}, Private: true}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	oracle, _ := module.Tool("oracle")
	messenger, _ := module.Tool("messenger")
	return []tool.Tool{oracle, messenger}
}

// TestRunsOfEightToolsReplay has a model call a module eight times at once,
// each of which reads the clock, draws numbers and makes two requests: every run
// replays without the server, also those whose tools fail at random, and those
// that are cancelled at random moments.
func TestRunsOfEightToolsReplay(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "you asked for ", r.URL.Path) }))
	defer server.Close()
	runs := treetest.Count(50, 100, 1_000)
	o := oracle(t, server)
	for _, tt := range []struct {
		name   string
		moody  bool
		cancel bool
	}{{"calm", false, false}, {"moody", true, false}, {"cancelled", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			var uses []agenttest.Use
			for i := range 8 {
				uses = append(uses, agenttest.Use{CallID: fmt.Sprint("c", i), Tool: "oracle", Args: fmt.Sprintf(`{"url":%q,"moody":%t}`, server.URL, tt.moody)})
			}
			turns := []agenttest.Turn{agenttest.Calls(uses...), agenttest.Say("so it is")}
			var group sync.WaitGroup
			for worker := range 4 {
				group.Go(func() {
					r := rand.New(rand.NewPCG(1, uint64(worker)))
					for range runs / 4 {
						a := &agent.Agent{Provider: agenttest.ScriptedProvider{Turns: turns}, Tools: []tool.Tool{o}, Log: newLog(), Config: agent.Config{Model: "m"}}
						recordAndReplay(t, a, tt.cancel, r)
					}
				})
			}
			group.Wait()
		})
	}
}

// recordAndReplay makes one run, cancels it if it is to, and replays it.
func recordAndReplay(t *testing.T, a *agent.Agent, cancelled bool, r *rand.Rand) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if cancelled {
		defer time.AfterFunc(time.Duration(r.IntN(6000))*time.Microsecond, cancel).Stop()
	}
	result, err := a.Run(ctx, "ask")
	if result == nil || err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the run: %v", err)
		return
	}
	events, err := a.Log.Read(context.Background(), result.RunID)
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Errorf("run %s: %v", result.RunID, err)
	}
	if _, err := a.Replay(context.Background(), events, agent.ReplayOptions{}); err != nil {
		t.Errorf("run %s of %d events: %v", result.RunID, len(events), err)
	}
	if last := events[len(events)-1].Kind; !cancelled && last != event.KindRunCompleted {
		t.Errorf("run %s ended with %s", result.RunID, last)
	}
}

// TestACallThatMustNotBegin has no outcome: its run stays open.
func TestACallThatMustNotBegin(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	log, no := newLog(), errors.New("the run is another host's")
	d := agent.Direct{Log: log, Tool: oracle(t, server).(*guest.Tool).Begin(func(context.Context) error { return no })}
	if result, err := d.RunWithID(t.Context(), "run", fmt.Appendf(nil, `{"url":%q}`, server.URL)); !errors.Is(err, no) || !errors.Is(err, tool.ErrHost) || result != nil {
		t.Errorf("%+v, %v", result, err)
	}
	events, err := log.Read(t.Context(), "run")
	if err != nil || len(events) != 2 || events[1].Kind != event.KindToolCallScheduled {
		t.Errorf("%v, %v", events, err)
	}
}

// TestARunNeedsItsModuleInItsLog begins runs in every way with a module that the log does
// not have. None is begun that could not be replayed from its log.
func TestARunNeedsItsModuleInItsLog(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	o := oracle(t, server)
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	log := store.Memory()
	args := json.RawMessage(`{"url":"` + server.URL + `","moody":false}`)
	turns := []agenttest.Turn{agenttest.Call("c1", "oracle", string(args)), agenttest.Say("so it is")}
	a := &agent.Agent{Provider: agenttest.ScriptedProvider{Turns: turns}, Tools: []tool.Tool{o}, Log: log, Config: agent.Config{Model: "m"}}
	begin := map[string]func() error{
		"a direct run": func() error {
			_, err := agent.Direct{Log: log, Tool: o}.Run(t.Context(), args)
			return err
		},
		"a run of an agent": func() error {
			_, err := a.Run(t.Context(), "ask")
			return err
		},
		"a run of an agent that is followed": func() error {
			_, events, err := a.RunStream(t.Context(), "ask")
			for ev := range events {
				if done, ok := ev.(agent.Done); ok {
					err = done.Err
				}
			}
			return err
		},
	}
	for what, run := range begin {
		if err := run(); !errors.Is(err, agent.ErrModuleNotStored) || !strings.Contains(err.Error(), `"oracle"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if runs, err := log.ListRuns(t.Context()); err != nil || len(runs) != 0 {
		t.Errorf("%d runs were begun, %v", len(runs), err)
	}
	if _, err := log.PutModule(t.Context(), source.Wasm); err != nil {
		t.Fatal(err)
	}
	for what, run := range begin {
		if err := run(); err != nil {
			t.Errorf("%s, with the module: %v", what, err)
		}
	}
}
