package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"google.golang.org/genai"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
	"github.com/starling-host/starling/runtime/provider/internal/sse"
)

// source implements [converse.Source].
type source struct {
	tap *tap
	ids *ids

	// mu keeps stop from running while next does. Close is called after the
	// context of the request has ended, which ends next.
	mu   sync.Mutex
	next func() (*genai.GenerateContentResponse, error, bool)
	stop func()

	first *genai.GenerateContentResponse // taken by begin, nil after that

	block  int64              // number of the last block
	kind   provider.ChunkKind // of the open block, 0 if there is none
	calls  int
	usage  provider.Usage
	finish string
	id     string
}

// begin sends the request and waits for the first event, because the SDK does not
// tell that a response has begun.
func begin(t *tap, ids *ids, responses iter.Seq2[*genai.GenerateContentResponse, error]) (*source, error) {
	s := &source{tap: t, ids: ids}
	s.next, s.stop = iter.Pull2(responses)
	var err error
	if s.first, err = s.take(); err == io.EOF {
		err = errCut
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close implements [converse.Source].
func (s *source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	return nil
}

// take returns the next event. It returns io.EOF at the end of the body. The SDK
// panics for some documents that are no response.
func (s *source) take() (resp *genai.GenerateContentResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err = converse.Malformed("the SDK cannot read it: %v", p)
		}
	}()
	resp, err, ok := s.next()
	var said genai.APIError
	switch {
	case ok && err == nil:
		return resp, nil
	case s.tap.status == 0 || s.tap.events == nil || errors.As(err, &said):
		return nil, err
	case err != nil:
		return nil, converse.Malformed("%w", err)
	case errors.Is(s.tap.err, sse.ErrTooLong):
		return nil, converse.Malformed("%w", s.tap.err)
	case s.tap.err != nil && s.tap.err != io.EOF:
		return nil, s.tap.err
	}
	return nil, io.EOF
}

// Read implements [converse.Source].
func (s *source) Read(m *converse.Message) error {
	resp, err := s.first, error(nil)
	s.first = nil
	if resp == nil {
		resp, err = s.take()
	}
	switch {
	case err == nil:
		return s.event(m, resp)
	case err != io.EOF:
		return err
	case s.finish == "":
		return errCut
	}
	m.StopReason, m.RequestID = s.finish, s.id
	return io.EOF
}

var errCut = fmt.Errorf("the response ended before a finish reason: %w", io.ErrUnexpectedEOF)

func (s *source) event(m *converse.Message, resp *genai.GenerateContentResponse) error {
	s.id = cmp.Or(resp.ResponseID, s.id)
	for i, c := range resp.Candidates {
		if c == nil || c.Index != 0 || i > 0 {
			return converse.Malformed("it has another candidate than the one that was asked for")
		}
		if err := s.candidate(m, c); err != nil {
			return err
		}
	}
	if f := resp.PromptFeedback; f != nil && f.BlockReason != "" {
		if err := s.end(m, string(f.BlockReason)); err != nil {
			return err
		}
	}
	s.count(m, resp.UsageMetadata)
	return nil
}

func (s *source) candidate(m *converse.Message, c *genai.Candidate) error {
	if c.Content != nil {
		for i, p := range c.Content.Parts {
			if s.finish != "" {
				return converse.Malformed("a part comes after the finish reason")
			}
			if err := s.part(m, i, p); err != nil {
				return err
			}
		}
	}
	if c.FinishReason == "" || c.FinishReason == genai.FinishReasonUnspecified {
		return nil
	}
	return s.end(m, string(c.FinishReason))
}

// end closes what is open and notes why the response ends. The first reason
// counts.
func (s *source) end(m *converse.Message, reason string) error {
	s.finish = cmp.Or(s.finish, reason)
	return s.open(m, 0)
}

func (s *source) part(m *converse.Message, i int, p *genai.Part) error {
	switch {
	case p == nil:
		return converse.Malformed("a part is null")
	case p.FunctionCall != nil:
		return s.call(m, i, p)
	case p.InlineData != nil, p.FileData != nil, p.ExecutableCode != nil, p.CodeExecutionResult != nil,
		p.FunctionResponse != nil, p.ToolCall != nil, p.ToolResponse != nil:
		return errors.New("a part that is no text, thought or call has no place in a Request, so it cannot be received")
	case p.Thought:
		return s.say(m, provider.ChunkReasoning, p.Text, p.ThoughtSignature)
	}
	if err := s.say(m, provider.ChunkText, p.Text, nil); err != nil || len(p.ThoughtSignature) == 0 {
		return err
	}
	return s.say(m, provider.ChunkReasoning, "", textSignature(p.ThoughtSignature))
}

// say adds a piece of text or of a thought. A signature ends the block.
func (s *source) say(m *converse.Message, kind provider.ChunkKind, text string, signature []byte) error {
	if text == "" && len(signature) == 0 {
		return nil
	}
	if err := s.open(m, kind); err != nil {
		return err
	}
	if err := m.Delta(s.block, kind, text); err != nil || len(signature) == 0 {
		return err
	}
	if err := m.Sign(s.block, string(signature)); err != nil {
		return err
	}
	return s.open(m, 0)
}

// open has a block of the kind open, and no other.
func (s *source) open(m *converse.Message, kind provider.ChunkKind) error {
	if kind == s.kind {
		return nil
	}
	if s.kind != 0 {
		if err := m.Close(s.block); err != nil {
			return err
		}
	}
	s.kind = kind
	if kind == 0 {
		return nil
	}
	s.block++
	return m.Open(s.block, kind)
}

// call adds a whole call. What signs it comes before it.
func (s *source) call(m *converse.Message, i int, p *genai.Part) error {
	call := p.FunctionCall
	if len(call.PartialArgs) > 0 || call.WillContinue != nil && *call.WillContinue {
		return converse.Malformed("the call of %q comes in pieces, which was not asked for", call.Name)
	}
	args, err := arguments(s.tap.data, i)
	if err != nil {
		return converse.Malformed("the call of %q: %w", call.Name, err)
	}
	if len(p.ThoughtSignature) > 0 {
		if err := s.say(m, provider.ChunkReasoning, "", callSignature(s.calls, p.ThoughtSignature)); err != nil {
			return err
		}
	}
	if err := s.open(m, 0); err != nil {
		return err
	}
	s.calls++
	s.block++
	if err := m.OpenToolUse(s.block, s.ids.unique(call.ID), call.Name, string(args)); err != nil {
		return err
	}
	return m.Close(s.block)
}

// count takes counts into account. They are those of the response so far.
func (s *source) count(m *converse.Message, u *genai.GenerateContentResponseUsageMetadata) {
	if u == nil {
		return
	}
	now := provider.Usage{
		InputTokens:     int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount),
		OutputTokens:    int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount),
		CacheReadTokens: int64(u.CachedContentTokenCount),
	}
	if now != s.usage {
		s.usage = now
		m.Usage(now)
	}
}
