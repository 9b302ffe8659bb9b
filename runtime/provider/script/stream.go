package script

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/runtime/provider"
)

// stream is an answer in progress.
type stream struct {
	ctx    context.Context // of the request
	chunks []provider.StreamChunk
	last   error // what comes after the chunks
	delay  time.Duration
	begun  bool

	closing sync.Once
	closed  chan struct{}
}

func newStream(ctx context.Context, a *answer, req *provider.Request) *stream {
	s := &stream{ctx: ctx, chunks: a.content, last: a.fails, delay: a.delay, closed: make(chan struct{})}
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
		timer := time.NewTimer(s.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		case <-s.closed:
		}
	}
	s.begun = true
	select {
	case <-s.closed:
		return errClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.ctx.Err()
}

// Close implements [provider.EventStream].
func (s *stream) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return nil
}
