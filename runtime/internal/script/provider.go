package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

// stream is an answer in progress.
type stream struct {
	ctx    context.Context // of the request, until the stream is closed
	chunks []provider.StreamChunk
	last   error // the end after the chunks
	delay  time.Duration
	begun  bool
	close  context.CancelCauseFunc
}

func newStream(ctx context.Context, a *answer, req *provider.Request) *stream {
	ctx, end := context.WithCancelCause(ctx)
	s := &stream{ctx: ctx, chunks: a.content, last: a.fails, delay: a.delay, close: end}
	if s.last == nil {
		usage := provider.StreamChunk{Kind: provider.ChunkUsage, Usage: a.usageFor(req)}
		s.chunks, s.last = append(slices.Clip(s.chunks), usage, a.end), io.EOF
	}
	return s
}

// Next implements [provider.EventStream].
func (s *stream) Next(ctx context.Context) (provider.StreamChunk, error) {
	if len(s.chunks) > 0 {
		if err := s.pause(ctx); err != nil {
			s.chunks, s.last = nil, err
		}
	}
	if len(s.chunks) == 0 {
		return provider.StreamChunk{}, s.last
	}
	c := s.chunks[0]
	s.chunks = s.chunks[1:]
	return c, nil
}

// pause lets the delay pass before all chunks but the first. It returns why the
// stream has ended meanwhile.
func (s *stream) pause(ctx context.Context) error {
	if s.delay > 0 && s.begun {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	s.begun = true
	if context.Cause(s.ctx) == errClosed {
		return errClosed
	}
	return cmp.Or(ctx.Err(), s.ctx.Err())
}

// Close implements [provider.EventStream].
func (s *stream) Close() error {
	s.close(errClosed)
	return nil
}

// Class is a class of failure.
type Class string

// The classes. All but the last are from package provider.
const (
	RateLimit  Class = "rate_limit"
	Auth       Class = "auth"
	Server     Class = "server"
	Network    Class = "network"
	BadRequest Class = "bad_request" // a mistake of the caller, of no class
)

var classes = map[Class]error{
	RateLimit: provider.ErrRateLimit, Auth: provider.ErrAuth, Server: provider.ErrServer, Network: provider.ErrNetwork,
	BadRequest: nil,
}

func (f *Failure) check() error {
	if _, ok := classes[f.Class]; !ok {
		names := lists.Map(slices.Sorted(maps.Keys(classes)), func(c Class) string { return string(c) })
		return fmt.Errorf("unknown class of failure %q: want %s", f.Class, strings.Join(names, ", "))
	}
	if f.AfterChunks < 0 {
		return fmt.Errorf("after_chunks is %d, want 0 or more", f.AfterChunks)
	}
	return nil
}

// err returns the failure as a provider reports it.
func (f *Failure) err() error {
	if f == nil {
		return nil
	}
	message := cmp.Or(f.Message, strings.ReplaceAll(string(f.Class), "_", " "))
	if class := classes[f.Class]; class != nil {
		return fmt.Errorf("%w: script: %s", class, message)
	}
	return fmt.Errorf("script: %s", message)
}

// content returns the chunks of the turn's content.
func (t *Turn) content(step int) []provider.StreamChunk {
	var list []provider.StreamChunk
	for _, r := range t.Reasoning {
		list = append(list, t.reasoning(r)...)
	}
	for _, piece := range t.pieces(t.Text) {
		list = append(list, provider.StreamChunk{Kind: provider.ChunkText, Text: piece})
	}
	for i, c := range t.ToolCalls {
		id := c.id(step, i)
		list = append(list, use(provider.ChunkToolUseStart, provider.ToolUseChunk{CallID: id, Name: c.Name}))
		for _, piece := range t.pieces(c.args()) {
			list = append(list, use(provider.ChunkToolUseDelta, provider.ToolUseChunk{CallID: id, ArgsDelta: piece}))
		}
		list = append(list, use(provider.ChunkToolUseEnd, provider.ToolUseChunk{CallID: id}))
	}
	return list
}

func (c *ToolCall) args() string { return cmp.Or(c.Args, "{}") }

func use(kind provider.ChunkKind, u provider.ToolUseChunk) provider.StreamChunk {
	return provider.StreamChunk{Kind: kind, ToolUse: &u}
}

// reasoning returns the chunks of one block. The signature is on the last one.
func (t *Turn) reasoning(r Reasoning) []provider.StreamChunk {
	if r.Redacted {
		return []provider.StreamChunk{{Kind: provider.ChunkRedactedThinking, Text: r.Text}}
	}
	list := lists.Map(t.pieces(r.Text), func(piece string) provider.StreamChunk {
		return provider.StreamChunk{Kind: provider.ChunkReasoning, Text: piece}
	})
	if r.Signature != "" {
		list[len(list)-1].Signature = []byte(r.Signature)
	}
	return list
}

// pieces divides text into the parts for single chunks.
func (t *Turn) pieces(text string) []string {
	var list []string
	for text != "" {
		n := word(text)
		if t.Chunk > 0 {
			n = characters(text, t.Chunk)
		}
		list, text = append(list, text[:n]), text[n:]
	}
	return list
}

// word returns the length of the first word with the white space around it.
func word(text string) int {
	const space = " \t\r\n"
	rest := strings.TrimLeft(text, space)
	end := strings.IndexAny(rest, space)
	if end < 0 {
		return len(text)
	}
	return len(text) - len(strings.TrimLeft(rest[end:], space))
}

// characters returns the length of the first n characters.
func characters(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// outputTokens estimates the tokens of the turn's content.
func (t *Turn) outputTokens() int64 {
	runes := utf8.RuneCountInString(t.Text)
	for _, r := range t.Reasoning {
		runes += utf8.RuneCountInString(r.Text)
	}
	for _, c := range t.ToolCalls {
		runes += utf8.RuneCountInString(c.args())
	}
	return int64(runes+2) / 3
}

// stopReason returns the turn's own reason or a typical one.
func (t *Turn) stopReason() string {
	usual := "end_turn"
	if len(t.ToolCalls) > 0 {
		usual = "tool_use"
	}
	return cmp.Or(t.StopReason, usual)
}

// model is a Provider. It is never changed.
type model struct {
	steps [][]answer // for each step the alternatives, in order
}

// answer is a turn that is ready to be sent.
type answer struct {
	when    *Guard
	content []provider.StreamChunk
	usage   provider.Usage
	guess   bool // count the request as the input tokens
	end     provider.StreamChunk
	fails   error // after the content
	delay   time.Duration
}

// New returns a model that speaks the script. The error is from
// [Script.Check], or means that a text is not UTF-8.
func New(s Script) (provider.Provider, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	m := &model{}
	var step []answer
	for i := range s {
		a, err := s[i].answer(len(m.steps) + 1)
		if err != nil {
			return nil, fmt.Errorf("script: turn %d: %w", i+1, err)
		}
		step = append(step, a)
		if a.when == nil || i == len(s)-1 {
			m.steps, step = append(m.steps, step), nil
		}
	}
	return m, nil
}

// answer prepares a turn of a step.
func (t *Turn) answer(step int) (answer, error) {
	encoded, err := canon.Marshal(t)
	if err != nil {
		return answer{}, err
	}
	hash := canon.Sum(encoded)
	a := answer{when: t.When, content: t.content(step), fails: t.Error.err(), delay: t.Delay, end: provider.StreamChunk{
		Kind: provider.ChunkEnd, StopReason: t.stopReason(), RawResponseHash: hash[:], RequestID: fmt.Sprintf("script_%d", step),
	}}
	if t.Usage == nil {
		a.guess, a.usage = true, provider.Usage{OutputTokens: t.outputTokens()}
	} else {
		a.usage = provider.Usage(*t.Usage)
	}
	if t.Error != nil {
		a.content = a.content[:t.Error.AfterChunks]
	}
	return a, nil
}

// Info implements [provider.Provider].
func (*model) Info() provider.Info { return provider.Info{ID: "script", APIVersion: "v1"} }

// Capabilities implements [provider.Capabler].
func (*model) Capabilities() provider.Capabilities {
	return provider.Capabilities{
		Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, CacheControl: true, RequestID: true,
	}
}

// Stream implements [provider.Provider].
func (m *model) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := refuseParams(req.Params); err != nil {
		return nil, err
	}
	a, err := m.choose(req.Messages)
	if err != nil {
		return nil, err
	}
	if a.fails != nil && len(a.content) == 0 {
		return nil, a.fails
	}
	return newStream(ctx, a, req), nil
}

// refuseParams refuses options: a script has none.
func refuseParams(params canon.Raw) error {
	var options map[string]canon.Raw
	if len(params) == 0 {
		return nil
	}
	if err := canon.Unmarshal(params, &options); err != nil {
		return fmt.Errorf("script: Request.Params is not a CBOR map of options: %w", err)
	}
	for name := range options {
		return fmt.Errorf("script: there is no option %q: a scripted model has none", name)
	}
	return nil
}

// choose returns the answer to a conversation.
func (m *model) choose(messages []provider.Message) (*answer, error) {
	step := 0
	for _, msg := range messages {
		if msg.Role == provider.RoleAssistant {
			step++
		}
	}
	if step >= len(m.steps) {
		return nil, fmt.Errorf("script: the model is asked for the answer of step %d, and the script has %d", step+1, len(m.steps))
	}
	last := lastText(messages)
	for i := range m.steps[step] {
		if a := &m.steps[step][i]; a.when == nil || strings.Contains(last, a.when.Contains) {
			return a, nil
		}
	}
	return nil, fmt.Errorf("script: no turn of step %d is for the message %.200q: add one without a guard", step+1, last)
}

// lastText returns the text that guards look at.
func lastText(messages []provider.Message) string {
	if len(messages) == 0 {
		return ""
	}
	last := messages[len(messages)-1]
	if last.ToolResult != nil {
		return last.ToolResult.Content
	}
	return last.Content
}

var errClosed = errors.New("script: the stream is closed")

// usageFor completes the counts of tokens.
func (a *answer) usageFor(req *provider.Request) *provider.Usage {
	u := a.usage
	if a.guess {
		u.InputTokens = budget.EstimateInput(req)
	}
	return &u
}
