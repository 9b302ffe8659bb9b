package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/sse"
)

// maxTrailer bounds what is read after the end, for the hash.
const maxTrailer = 64 << 10

// Stream implements [provider.Provider].
func (c *client) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	body, err := c.encode(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.info.ID, err)
	}
	ids, err := newIDs(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.info.ID, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	hashed, sum := provider.WithBodyHash(ctx)
	resp, err := c.send(hashed, req.Model, body)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{
		client: c, ctx: ctx, cancel: cancel, body: resp.Body, events: sse.NewReader(resp.Body),
		sum: sum, requestID: requestID(resp.Header), calls: calls{ids: ids},
	}, nil
}

// send returns a response that is a stream.
func (c *client) send(ctx context.Context, model string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target(model), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.info.ID, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	c.authorise(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, provider.ClassifyTransport(fmt.Errorf("%s: %w", c.info.ID, err))
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || media == "application/json" || media == "text/html" {
		return nil, c.failure(resp)
	}
	return resp, nil
}

// stream is an EventStream.
type stream struct {
	client    *client
	ctx       context.Context // that of the request
	cancel    context.CancelFunc
	body      io.ReadCloser
	events    *sse.Reader
	sum       *provider.BodyHash
	requestID string

	calls  calls
	usage  provider.Usage // as it was last sent on
	finish string

	queue []provider.StreamChunk
	err   error // after the queue
}

// Next implements [provider.EventStream].
func (s *stream) Next(ctx context.Context) (provider.StreamChunk, error) {
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	for len(s.queue) == 0 && s.err == nil {
		s.err = s.explain(ctx, s.advance(ctx))
	}
	if len(s.queue) == 0 {
		return provider.StreamChunk{}, s.err
	}
	c := s.queue[0]
	s.queue = s.queue[1:]
	return c, nil
}

// Close implements [provider.EventStream].
func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

// errCut is the end of a stream that has not said "[DONE]".
var errCut = fmt.Errorf("the response ends before it is complete: %w", io.ErrUnexpectedEOF)

// advance takes the next event. It returns io.EOF after the last one.
func (s *stream) advance(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ev, err := s.events.Next()
	switch {
	case err == io.EOF:
		return errCut
	case errors.Is(err, sse.ErrTooLong):
		return err
	case err != nil:
		return transportError{err}
	case string(bytes.TrimSpace(ev.Data)) == "[DONE]":
		return s.end()
	}
	return s.take(ev.Data)
}

// transportError is any error of reading the response. Many kinds of those do
// not say that they come from the network.
type transportError struct{ error }

// Unwrap allows [errors.Is] to look inside.
func (e transportError) Unwrap() error { return e.error }

// explain gives an error its class. Where a context has ended, that is the reason
// for whatever else went wrong.
func (s *stream) explain(ctx context.Context, err error) error {
	var transport transportError
	switch {
	case err == nil || err == io.EOF:
		return err
	case ctx.Err() != nil:
		err = ctx.Err()
	case s.ctx.Err() != nil:
		err = s.ctx.Err()
	case errors.As(err, &transport) || err == errCut:
		return fmt.Errorf("%w: %s: %w", provider.ErrNetwork, s.client.info.ID, err)
	}
	return fmt.Errorf("%s: %w", s.client.info.ID, err)
}

// end queues the last chunk. The body is read to its end, because its hash is of
// all of it. A connection that breaks now takes nothing away.
func (s *stream) end() error {
	if s.finish == "" {
		return errors.New("the response ends without a finish_reason")
	}
	io.Copy(io.Discard, io.LimitReader(s.body, maxTrailer))
	s.queue = append(s.queue, provider.StreamChunk{
		Kind: provider.ChunkEnd, StopReason: s.finish, RawResponseHash: s.sum.Sum(), RequestID: s.requestID,
	})
	return io.EOF
}

// event is one event of the stream.
type event struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Groq    struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content          string      `json:"content"`
	Refusal          string      `json:"refusal"`
	ReasoningContent string      `json:"reasoning_content"` // DeepSeek, vLLM
	Reasoning        string      `json:"reasoning"`         // OpenRouter, Groq; some send both
	ToolCalls        []callDelta `json:"tool_calls"`
}

// take queues the chunks of an event.
func (s *stream) take(data []byte) error {
	var ev event
	err := json.Unmarshal(data, &ev)
	if err != nil || ev.Choices == nil || !isNull(ev.Error) {
		if f := parseFault(data); f != nil {
			return provider.WrapHTTPStatus(fmt.Errorf("the server broke off: %s", s.client.clean(f.text())), f.status())
		}
	}
	if err != nil {
		return fmt.Errorf("an event is not the JSON of a chat completion: %w: %s", err, s.client.clean(string(data)))
	}
	for _, c := range ev.Choices {
		if err := s.choose(c); err != nil {
			return err
		}
	}
	s.count(ev.Groq.Usage)
	s.count(ev.Usage)
	return nil
}

func (s *stream) choose(c choice) error {
	if c.Index != 0 {
		return fmt.Errorf("the response has a choice %d, and one was asked for", c.Index)
	}
	thought := c.Delta.ReasoningContent
	if thought == "" {
		thought = c.Delta.Reasoning
	}
	s.text(provider.ChunkReasoning, thought)
	s.text(provider.ChunkText, c.Delta.Content)
	s.text(provider.ChunkText, c.Delta.Refusal)
	for _, d := range c.Delta.ToolCalls {
		if s.finish != "" {
			return errors.New("a tool call goes on after the finish_reason")
		}
		if err := s.calls.take(d); err != nil {
			return err
		}
	}
	if c.FinishReason != "" && s.finish == "" { // OpenRouter says it again beside the counts
		s.finish = c.FinishReason
		if err := s.calls.close(); err != nil {
			return err
		}
	}
	s.queue = append(s.queue, s.calls.chunks()...)
	return nil
}

func (s *stream) text(kind provider.ChunkKind, text string) {
	if text != "" {
		s.queue = append(s.queue, provider.StreamChunk{Kind: kind, Text: text})
	}
}

// usage are counts of tokens in the words of several vendors.
type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	PromptDetails    struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"` // OpenRouter
	} `json:"prompt_tokens_details"`
	CacheHitTokens int64 `json:"prompt_cache_hit_tokens"` // DeepSeek
}

// count queues counts that are new. Some servers repeat them with every event.
func (s *stream) count(u *usage) {
	if u == nil {
		return
	}
	now := provider.Usage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
		CacheReadTokens: max(u.PromptDetails.CachedTokens, u.CacheHitTokens), CacheCreateTokens: u.PromptDetails.CacheWriteTokens,
	}
	if now != s.usage {
		s.usage = now
		s.queue = append(s.queue, provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &now})
	}
}
