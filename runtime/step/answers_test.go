package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
)

// TestWithAnswers: answers stand in for the world and are recorded, so the run replays. An error
// ends the run, even if the tool handles it.
func TestWithAnswers(t *testing.T) {
	performed := false
	guest := newTool("guest", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		bits := step.Random(ctx)
		text, err := step.Do(ctx, step.Effect{Name: "ask", Request: []byte("why"), Unsafe: true}, func(context.Context, string) (string, error) {
			performed = true
			return "the world", nil
		})
		if err != nil {
			return json.RawMessage(`"handled"`), nil
		}
		return json.Marshal(map[string]any{"bits": bits, "text": text})
	})
	cfg := step.Config{Tools: step.NewRegistry(guest)}
	marshal := func(value any) (canon.Raw, time.Duration, error) {
		raw, err := canon.Marshal(value)
		return raw, 0, err
	}
	answering := func(answer step.Answer) body {
		return func(ctx context.Context) error {
			result, err := step.CallTool(step.WithAnswers(ctx, answer), step.ToolCall{TurnID: "1", Name: "guest", Args: json.RawMessage(`{}`)})
			if err == nil && string(result) != `{"bits":7,"text":"because"}` {
				t.Errorf("result %s", result)
			}
			return err
		}
	}
	var asked []string
	events := recordRun(t, cfg, answering(func(name string, request []byte) (canon.Raw, time.Duration, error) {
		asked = append(asked, name+" "+string(request))
		if name == "rand" {
			return marshal(uint64(7))
		}
		return marshal("because")
	}))
	if len(asked) != 2 || asked[0] != "rand " || asked[1] != "ask why" || performed {
		t.Errorf("asked %q, performed %v", asked, performed)
	}
	mustReplay(t, events, cfg, answering(func(string, []byte) (canon.Raw, time.Duration, error) {
		t.Error("a replay asked")
		return nil, 0, nil
	}))

	unknown := errors.New("not in the case")
	for _, until := range []int{0, 1} {
		cfg.Log, cfg.RunID = store.Memory(), "run"
		n := 0
		err := drive(t.Context(), step.MustNewContext(cfg), answering(func(string, []byte) (canon.Raw, time.Duration, error) {
			if n++; n > until {
				return nil, 0, unknown
			}
			return marshal(uint64(7))
		}))
		if !errors.Is(err, unknown) {
			t.Errorf("after %d answers: %v", until, err)
		}
	}
}
