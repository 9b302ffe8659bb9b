package step

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

type Context struct{}

func NewContext(cfg Config) (*Context, error) { panic("step: under construction") }
func MustNewContext(cfg Config) *Context      { panic("step: under construction") }
func WithContext(parent context.Context, c *Context) context.Context {
	panic("step: under construction")
}
func From(ctx context.Context) (*Context, bool) { panic("step: under construction") }

func (c *Context) RunID() string        { panic("step: under construction") }
func (c *Context) Logger() *slog.Logger { panic("step: under construction") }
func (c *Context) Metrics() MetricsSink { panic("step: under construction") }
func (c *Context) Err() error           { panic("step: under construction") }
func (c *Context) Finish() error        { panic("step: under construction") }

func Emit[T any](ctx context.Context, c *Context, kind event.Kind, payload T) error {
	panic("step: under construction")
}
func ReplayDurationMs(ctx context.Context, fallback int64) int64 { panic("step: under construction") }

func Now(ctx context.Context) time.Time { panic("step: under construction") }
func Random(ctx context.Context) uint64 { panic("step: under construction") }
func Seed(ctx context.Context) [32]byte { panic("step: under construction") }

type Effect struct {
	Name    string
	Request []byte
	Unsafe  bool
}

func SideEffect[T any](ctx context.Context, name string, fn func() (T, error)) (T, error) {
	panic("step: under construction")
}
func Do[T any](ctx context.Context, e Effect, fn func(ctx context.Context, key string) (T, error)) (T, error) {
	panic("step: under construction")
}

type ToolCall struct {
	CallID      string
	TurnID      string
	Name        string
	Args        json.RawMessage
	Idempotent  bool
	MaxAttempts int
	Backoff     func(attempt int) time.Duration
}
type ToolResult struct {
	CallID string
	Result json.RawMessage
	Err    error
}

func NewCallID() string { panic("step: under construction") }
func CallTool(ctx context.Context, call ToolCall) (json.RawMessage, error) {
	panic("step: under construction")
}
func CallTools(ctx context.Context, calls []ToolCall) ([]ToolResult, error) {
	panic("step: under construction")
}

type Meter = event.Meter

func SetProbe(ctx context.Context, probe func() Meter) { panic("step: under construction") }
func RecordedStop(ctx context.Context) (event.ToolCallFailed, bool) {
	panic("step: under construction")
}

type Call struct {
	RunID, CallID string
	Attempt       uint32
}

func CallInfo(ctx context.Context) (Call, bool) { panic("step: under construction") }
