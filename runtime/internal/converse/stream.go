package converse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/starling-host/starling/runtime/provider"
)

// stream is a response in progress.
type stream struct {
	api       *API
	reader    Reader
	body      io.ReadCloser
	events    Events // of the body
	requestID string // in the header
	message   Message
	hash      *provider.BodyHash

	ctx    context.Context // of the request; ends with the response
	cancel context.CancelFunc
	err    error // how it ended
}

// Ask sends a request, whose body is an object of JSON, and returns its response.
func (a *API) Ask(ctx context.Context, url string, header http.Header, body []byte, r Reader) (provider.EventStream, error) {
	inner, cancel := context.WithCancel(ctx)
	inner, hash := provider.WithBodyHash(inner)
	s := &stream{api: a, reader: r, hash: hash, ctx: inner, cancel: cancel}
	resp, err := a.post(inner, url, header, body)
	if err != nil {
		err = s.failure(ctx, err)
		cancel()
		return nil, err
	}
	s.body, s.events, s.requestID = resp.Body, NewEventReader(resp.Body), a.RequestID(resp.Header)
	if a.Events != nil {
		s.events = a.Events(resp.Body)
	}
	s.message.RequestID = s.requestID
	return s, nil
}

// Next implements [provider.EventStream].
func (s *stream) Next(ctx context.Context) (provider.StreamChunk, error) {
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

func (s *stream) advance(ctx context.Context) error {
	err := s.read()
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

var errCut = fmt.Errorf("the response ended before it was complete: %w", io.ErrUnexpectedEOF)

// read takes the next event into the message. It returns io.EOF when the body has ended with
// all that a complete response has.
func (s *stream) read() error {
	ev, err := s.events.Next()
	switch {
	case err == nil:
		err = s.reader.Event(&s.message, ev)
		if fault, ok := errors.AsType[*Fault](err); ok {
			fault.RequestID = cmp.Or(fault.RequestID, s.requestID)
		}
		return err
	case errors.Is(err, ErrEventTooLong):
		return Malformed("%w", err)
	case s.reader.Complete(err == io.EOF):
		return io.EOF
	case err == io.EOF:
		return errCut
	}
	return err
}

// failure prefers the end of a context, which caused the other failures, over those.
func (s *stream) failure(ctx context.Context, err error) error {
	for _, ctx := range []context.Context{ctx, s.ctx} {
		if ended := ctx.Err(); ended != nil {
			err = ended
			break
		}
	}
	return s.api.explain(err)
}

// Close implements [provider.EventStream]. Next reports how the response
// ended, so Close never fails.
func (s *stream) Close() error {
	s.stop()
	return nil
}

func (s *stream) stop() {
	s.cancel()
	s.body.Close()
}
