package converse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

func TestParams(t *testing.T) {
	known := []string{"a", "b"}
	for name, tc := range map[string]struct {
		raw  string
		want string
		err  string
	}{
		"nothing":                    {"", "", ""},
		"null":                       {"\xf6", "", ""},
		"empty":                      {"\xa0", "", ""},
		"known":                      {"\xa2\x61a\x01\x61b\x81\x02", "a=1 b=[2]", ""},
		"unknown":                    {"\xa2\x61a\x01\x61c\x02", "", `unknown option "c", known are a, b`},
		"no map":                     {"\x81\x01", "", "want a map of options, got [1]"},
		"no CBOR":                    {"\xff", "", "params: "},
		"bytes, which JSON has none": {"\xa1\x61a\x41\x00", "", "params: "},
	} {
		params, err := converse.Params(canon.Raw(tc.raw), known)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got the error %v, want %q", name, err, tc.err)
		}
		var got []string
		for _, key := range known {
			if value, ok := params[key]; ok {
				got = append(got, key+"="+string(value))
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestTurns(t *testing.T) {
	user := func(s string) provider.Message { return provider.Message{Role: provider.RoleUser, Content: s} }
	result := func(id string) provider.Message {
		return provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: id}}
	}
	asked := provider.Message{Role: provider.RoleAssistant, ToolUses: []provider.ToolUse{{CallID: "1"}, {CallID: "2"}}}
	thought := provider.Message{Role: provider.RoleAssistant, Reasoning: []provider.Reasoning{{}}}
	silent := provider.Message{Role: provider.RoleAssistant}
	got, err := converse.Turns([]provider.Message{user("a"), user("b"), asked, result("1"), result("2"), user("c"), silent, user(""), user("d"), thought, asked})
	want := []converse.Turn{
		{Messages: []provider.Message{user("a"), user("b")}},
		{Assistant: true, Messages: []provider.Message{asked}},
		{Messages: []provider.Message{result("1"), result("2"), user("c"), user("d")}},
		{Assistant: true, Messages: []provider.Message{thought, asked}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	for name, tc := range map[string]struct{ text, want string }{
		"as it is":       {"no such model", "no such model"},
		"lines":          {"no\r\n\tsuch  model\n", "no such model"},
		"not UTF-8":      {"no\xff model", "no model"},
		"long":           {strings.Repeat("x", 3000), strings.Repeat("x", 2048) + "..."},
		"long, in runes": {strings.Repeat("é", 1500) + "x", strings.Repeat("é", 1024) + "..."},
		"cut in a rune":  {"x" + strings.Repeat("é", 1500), "x" + strings.Repeat("é", 1023) + "..."},
	} {
		err := &converse.Error{Text: tc.text, Err: cause}
		if err.Error() != tc.want || !errors.Is(err, cause) {
			t.Errorf("%s: got %q, want %q", name, err, tc.want)
		}
	}
}

// script is a source of given steps. Each may add a chunk.
type script struct {
	steps  []func(m *converse.Message) error
	closed chan struct{}
}

func (s *script) Read(m *converse.Message) error {
	if len(s.steps) == 0 {
		<-s.closed
		return errors.New("closed")
	}
	next := s.steps[0]
	s.steps = s.steps[1:]
	return next(m)
}

func (s *script) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return errors.New("what a source says when it is closed does not matter")
}

func begin(t *testing.T, ctx context.Context, steps ...func(*converse.Message) error) *converse.Stream {
	t.Helper()
	stream, err := converse.Begin(ctx, func(context.Context) (converse.Source, error) {
		return &script{steps, make(chan struct{})}, nil
	}, func(err error) error { return fmt.Errorf("explained: %w", err) })
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestChunksComeBeforeTheError reads from a source that returns data and an error together.
func TestChunksComeBeforeTheError(t *testing.T) {
	broken := errors.New("broken")
	stream := begin(t, t.Context(), func(m *converse.Message) error {
		m.Usage(provider.Usage{InputTokens: 1})
		return broken
	})
	if c, err := stream.Next(t.Context()); err != nil || c.Kind != provider.ChunkUsage {
		t.Errorf("got %v, %v, want the usage", c, err)
	}
	for range 2 {
		if _, err := stream.Next(t.Context()); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "explained: ") {
			t.Errorf("got %v, want the explained error each time", err)
		}
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// TestContexts has a source that ignores contexts, and ends when it is closed.
func TestContexts(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	stream := begin(t, t.Context())
	if _, err := stream.Next(over); !errors.Is(err, context.Canceled) {
		t.Errorf("the context of Next: got %v", err)
	}
	stream = begin(t, t.Context())
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("after Close: got %v", err)
	}
	_, err := converse.Begin(over, func(ctx context.Context) (converse.Source, error) { return nil, io.ErrUnexpectedEOF }, provider.ClassifyTransport)
	if !errors.Is(err, context.Canceled) || provider.Transient(err) {
		t.Errorf("the context of the request: got %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestClient has an error of HTTP/2, whose type does not mark it as a network error.
func TestClient(t *testing.T) {
	lost := errors.New("stream error: stream ID 1; INTERNAL_ERROR")
	client := converse.Client(&http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(lost))
		return &http.Response{StatusCode: 200, Body: io.NopCloser(body), Request: req}, nil
	})})
	ctx, sum := provider.WithBodyHash(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider.invalid", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if string(got) != "abc" || !errors.Is(err, provider.ErrNetwork) || !errors.Is(err, lost) || sum.Sum() == nil {
		t.Errorf("got %q, %v, hash %x", got, err, sum.Sum())
	}
}

// TestSilentServersAreLeft has servers that send nothing: no response, or no more of one. One
// that sends a byte now and then is waited for.
func TestSilentServersAreLeft(t *testing.T) {
	for name, begins := range map[string]bool{"before the response": false, "in the response": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := converse.Client(&http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
					if !begins {
						<-req.Context().Done()
						return nil, req.Context().Err()
					}
					r, w := io.Pipe()
					go func() {
						for range 10 {
							time.Sleep(4 * time.Minute)
							_, _ = w.Write([]byte("."))
						}
						<-req.Context().Done()
						w.CloseWithError(req.Context().Err())
					}()
					return &http.Response{StatusCode: 200, Body: r, Request: req}, nil
				})})
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider.invalid", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if begins {
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					var got []byte
					if got, err = io.ReadAll(resp.Body); len(got) != 10 {
						t.Errorf("read %q", got)
					}
				}
				if !provider.Transient(err) || !strings.Contains(err.Error(), "nothing for 5m0s") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
