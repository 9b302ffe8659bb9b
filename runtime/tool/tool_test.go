package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

func TestRecover(t *testing.T) {
	inner := errors.New("inner")
	cases := []struct {
		name  string
		panic any
		text  string
		is    error
	}{
		{"text", "kaboom", "tool: panicked: kaboom", nil},
		{"an error", inner, "tool: panicked: inner", inner},
		{"an error of the runtime", nil, "tool: panicked: runtime error: index out of range [3] with length 0", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := func() (err error) {
				defer tool.Recover(&err)
				if c.panic != nil {
					panic(c.panic)
				}
				var none []int
				index := 3
				return fmt.Errorf("%d", none[index])
			}()
			if !errors.Is(err, tool.ErrPanicked) || err.Error() != c.text || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := func() (err error) { defer tool.Recover(&err); return inner }(); err != inner {
		t.Errorf("without a panic: %v", err)
	}
}

type plain struct{}

func (plain) Name() string            { return "plain" }
func (plain) Description() string     { return "" }
func (plain) Schema() json.RawMessage { return nil }
func (plain) Execute(context.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}

type boxed struct{ plain }

func (boxed) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "box"} }

type wrapped struct {
	plain
	inner tool.Tool
}

func (w wrapped) Unwrap() tool.Tool { return w.inner }

func TestSandboxOf(t *testing.T) {
	cases := []struct {
		name string
		tool tool.Tool
		want bool
	}{
		{"nothing", nil, false},
		{"a native tool", plain{}, false},
		{"a sandboxed tool", boxed{}, true},
		{"a wrapped sandboxed tool", wrapped{inner: wrapped{inner: boxed{}}}, true},
		{"a wrapped native tool", wrapped{inner: plain{}}, false},
		{"a wrapper of nothing", wrapped{}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := tool.SandboxOf(c.tool); (got != nil) != c.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
