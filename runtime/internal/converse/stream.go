package converse

import (
	"context"
	"io"

	"github.com/starling-host/starling/runtime/provider"
)

// Source reads the events of one vendor's response.
type Source interface {
	// Read takes the next event into m. It returns io.EOF when the body has
	// ended with all that a complete response has, io.ErrUnexpectedEOF when it
	// has ended without.
	Read(m *Message) error

	// Close ends a Read that waits. It may be called at any time, and again.
	Close() error
}

// Stream is a response in progress.
type Stream struct {
	message Message
	source  Source
	hash    *provider.BodyHash
	explain func(error) error

	ctx    context.Context // of the request; ends with the response
	cancel context.CancelFunc
	err    error // how it ended
}

// Begin sends a request with open and returns its response. It passes errors of open and of the
// source to explain, which adds a class and the name of the provider.
func Begin(ctx context.Context, open func(context.Context) (Source, error), explain func(error) error) (*Stream, error) {
	inner, cancel := context.WithCancel(ctx)
	inner, hash := provider.WithBodyHash(inner)
	s := &Stream{hash: hash, explain: explain, ctx: inner, cancel: cancel}
	source, err := open(inner)
	if err != nil {
		err = s.failure(ctx, err)
		cancel()
		return nil, err
	}
	s.source = source
	return s, nil
}

// Next implements [provider.EventStream].
func (s *Stream) Next(ctx context.Context) (provider.StreamChunk, error) {
	defer context.AfterFunc(ctx, s.stop)()
	for len(s.message.queue) == 0 {
		if s.err != nil {
			return provider.StreamChunk{}, s.err
		}
		s.err = s.advance(ctx)
	}
	next := s.message.queue[0]
	s.message.queue = s.message.queue[1:]
	return next, nil
}

func (s *Stream) advance(ctx context.Context) error {
	err := s.source.Read(&s.message)
	if err == nil {
		return nil
	}
	if err == io.EOF {
		if err = s.message.end(s.hash.Sum()); err == nil {
			return io.EOF
		}
	}
	return s.failure(ctx, err)
}

// failure prefers the end of a context, which caused the other failures, over those.
func (s *Stream) failure(ctx context.Context, err error) error {
	for _, ctx := range []context.Context{ctx, s.ctx} {
		if ended := ctx.Err(); ended != nil {
			err = ended
			break
		}
	}
	return s.explain(err)
}

// Close implements [provider.EventStream]. Next reports how the response
// ended, so Close never fails.
func (s *Stream) Close() error {
	s.stop()
	return nil
}

func (s *Stream) stop() {
	s.cancel()
	s.source.Close()
}
