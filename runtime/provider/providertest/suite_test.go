package providertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// body is a response in which everything happens.
const body = `data: {"choices":[{"delta":{"reasoning":"Hm."}}]}

data: {"choices":[{"delta":{"content":"Hi"}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"f"}}]}}]}

data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}

data: [DONE]

`

func chunks() []provider.StreamChunk {
	use := func(kind provider.ChunkKind, id, name, args string) provider.StreamChunk {
		return provider.StreamChunk{Kind: kind, ToolUse: &provider.ToolUseChunk{CallID: id, Name: name, ArgsDelta: args}}
	}
	return []provider.StreamChunk{
		{Kind: provider.ChunkReasoning, Text: "Hm."},
		{Kind: provider.ChunkText, Text: "Hi"},
		use(provider.ChunkToolUseStart, "a", "f", ""), use(provider.ChunkToolUseDelta, "a", "", "{}"), use(provider.ChunkToolUseStart, "b", "f", ""),
		use(provider.ChunkToolUseEnd, "a", "", ""), use(provider.ChunkToolUseEnd, "b", "", ""),
		{Kind: provider.ChunkUsage, Usage: &provider.Usage{InputTokens: 1, OutputTokens: 2}},
		{Kind: provider.ChunkEnd, StopReason: "tool_calls", RequestID: "r"},
	}
}

// TestSubject runs the suite on a provider with the defect that the environment
// names. It is run by TestDefects, and otherwise does nothing.
func TestSubject(t *testing.T) {
	defect, ok := defects[os.Getenv(defectVariable)]
	if !ok {
		return // not asked for
	}
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	subject := func(t testing.TB, url string, client *http.Client) provider.Provider {
		if defect.transport != nil {
			client = &http.Client{Transport: defect.transport(client.Transport)}
		}
		p, err := openai.OpenAI.New(converse.Config{APIKey: providertest.Key, BaseURL: url, HTTP: client})
		if err != nil {
			t.Fatal(err)
		}
		return &faulty{Provider: p, defect: defect}
	}
	providertest.Run(t, providertest.Suite{
		New:         subject,
		ContentType: "text/event-stream",
		Transcripts: []providertest.Transcript{
			{Name: "first", File: file, Terminal: `"finish_reason"`, Want: chunks(), Header: http.Header{"X-Request-Id": {"r"}}},
		},
		Empty: map[string]string{
			"stop": `data: {"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
		},
		Failure: providertest.Failure{Body: `{"error":{"message":"no such model"}}`, Want: "no such model"},
		Broken:  []providertest.Broken{{Name: "syntax", Body: "data: {\n\n", Want: "JSON"}},
		Golden:  filepath.Join(t.TempDir(), "golden"),
	})
}

const defectVariable = "PROVIDERTEST_DEFECT"

// defect is the fault of a broken provider.
type defect struct {
	found     string // the name of a test that fails, or a text that it fails with
	transport func(http.RoundTripper) http.RoundTripper
	request   func(*provider.Request) *provider.Request
	stream    func(context.Context, provider.EventStream) provider.EventStream
	next      func(context.Context, provider.EventStream) (provider.StreamChunk, error)
	close     func(provider.EventStream) error
	err       func(error) error
}

// replaced makes a defect of Next that changes its results.
func replaced(change func(provider.StreamChunk, error) (provider.StreamChunk, error)) func(context.Context, provider.EventStream) (provider.StreamChunk, error) {
	return func(ctx context.Context, s provider.EventStream) (provider.StreamChunk, error) {
		return change(s.Next(ctx))
	}
}

var defects = map[string]defect{
	"none": {},
	"a cut is taken for the end": {found: "first/cut", next: replaced(func(c provider.StreamChunk, err error) (provider.StreamChunk, error) {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return provider.StreamChunk{}, io.EOF
		}
		return c, err
	})},
	"a lost connection has no class": {found: "first/connection_lost", next: replaced(func(c provider.StreamChunk, err error) (provider.StreamChunk, error) {
		if err != nil && err != io.EOF {
			err = errors.New("something happened")
		}
		return c, err
	})},
	"no hash": {found: "first/over_a_socket", next: replaced(func(c provider.StreamChunk, err error) (provider.StreamChunk, error) {
		c.RawResponseHash = nil
		return c, err
	})},
	"a chunk after the end": {found: "a chunk after the error EOF", next: replaced(func(c provider.StreamChunk, err error) (provider.StreamChunk, error) {
		if err == io.EOF && after.Add(1)%2 == 0 {
			return provider.StreamChunk{Kind: provider.ChunkText, Text: "PS"}, nil
		}
		return c, err
	})},
	"the calls have the same id": {found: "first/in_pieces", next: replaced(func(c provider.StreamChunk, err error) (provider.StreamChunk, error) {
		if c.ToolUse != nil {
			c.ToolUse.CallID = "a"
		}
		return c, err
	})},
	"everything is the server's fault": {found: "statuses/400", err: func(err error) error { return fmt.Errorf("%w: %w", provider.ErrServer, err) }},
	"the error has the key":            {found: "the key in it", err: func(err error) error { return fmt.Errorf("%w (with %s)", err, providertest.Key) }},
	"the error has no words":           {found: "statuses/401", err: func(err error) error { return provider.WrapHTTPStatus(errors.New("failed"), 401) }},
	"the context of Next is ignored": {found: "TestSubject/hanging", next: func(_ context.Context, s provider.EventStream) (provider.StreamChunk, error) {
		return s.Next(context.Background())
	}},
	"the context of the request is ignored": {found: "TestSubject/hanging", transport: func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			return inner.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
		})
	}},
	"the body stays open":       {found: "1 bodies open", close: func(provider.EventStream) error { return nil }},
	"closing twice is an error": {found: "closed already", close: closeOnce},
	"a goroutine stays": {found: "blocked goroutines remain", stream: func(_ context.Context, s provider.EventStream) provider.EventStream {
		go func() { <-make(chan int) }()
		return s
	}},
	"it tries again": {found: "got 2 requests", transport: func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(req)
			if err == nil && resp.StatusCode >= 500 {
				resp.Body.Close()
				return inner.RoundTrip(req)
			}
			return resp, err
		})
	}},
	"options are dropped": {found: "request/unknown_option", request: func(req *provider.Request) *provider.Request {
		copied := *req
		copied.Params = nil
		return &copied
	}},
	"the request changes": {found: "two requests differ", transport: func(inner http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			text, _ := io.ReadAll(req.Body)
			text = bytes.Replace(text, []byte(`"model"`), fmt.Appendf(nil, `"n":%d,"model"`, after.Add(1)), 1)
			req.Body = io.NopCloser(bytes.NewReader(text))
			return inner.RoundTrip(req)
		})
	}},
	"streams share their state": {found: "TestSubject/concurrent", request: func(req *provider.Request) *provider.Request {
		if strings.HasPrefix(req.Model, "recording") {
			open.Add(1)
		}
		return req
	}, next: replaced(func(c provider.StreamChunk, err error) (provider.StreamChunk, error) {
		if c.Kind == provider.ChunkEnd && open.Load() > 1 {
			c.StopReason = "that of another stream"
		}
		return c, err
	})},
}

// after and open count chunks and streams of the one subject of a process.
var after, open atomic.Int64

var closed sync.Map

func closeOnce(s provider.EventStream) error {
	if _, again := closed.LoadOrStore(s, true); again {
		return errors.New("closed already")
	}
	return s.Close()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// faulty is a provider with a defect.
type faulty struct {
	provider.Provider
	defect defect
}

func (f *faulty) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	if f.defect.request != nil {
		req = f.defect.request(req)
	}
	s, err := f.Provider.Stream(ctx, req)
	if err != nil && f.defect.err != nil {
		err = f.defect.err(err)
	}
	if err == nil && f.defect.stream != nil {
		s = f.defect.stream(ctx, s)
	}
	return &faultyStream{s, f.defect}, err
}

type faultyStream struct {
	provider.EventStream
	defect defect
}

func (f *faultyStream) Next(ctx context.Context) (provider.StreamChunk, error) {
	if f.defect.next != nil {
		return f.defect.next(ctx, f.EventStream)
	}
	return f.EventStream.Next(ctx)
}

func (f *faultyStream) Close() error {
	if f.defect.close != nil {
		return f.defect.close(f.EventStream)
	}
	return f.EventStream.Close()
}

// TestDefects runs the suite on providers that break the contract, each in a
// process of its own, because a failure ends it.
func TestDefects(t *testing.T) {
	for name, d := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSubject$", "-test.timeout=1m", "-update")
			cmd.Env = append(os.Environ(), defectVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (name == "none") || !strings.Contains(string(out), d.found) {
				t.Errorf("got %v, want a failure with %q\n%.4000s", err, d.found, out)
			}
		})
	}
}
