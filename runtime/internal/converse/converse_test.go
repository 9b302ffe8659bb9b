package converse_test

import (
	"context"
	"encoding/json"
	"errors"
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
		var got []string
		err := converse.Params(canon.Raw(tc.raw), known, nil, false, func(name string, value json.RawMessage) {
			got = append(got, name+"="+string(value))
		})
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got the error %v, want %q", name, err, tc.err)
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
	type turn struct {
		Role     string
		Messages []provider.Message
	}
	var got []turn
	err := converse.EachTurn([]provider.Message{user("a"), user("b"), asked, result("1"), result("2"), user("c"), silent, user(""), user("d"), thought, asked},
		func(m provider.Message) ([]provider.Message, error) { return []provider.Message{m}, nil },
		func(role string, messages []provider.Message) { got = append(got, turn{role, messages}) })
	want := []turn{
		{provider.RoleUser, []provider.Message{user("a"), user("b")}},
		{provider.RoleAssistant, []provider.Message{asked}},
		{provider.RoleUser, []provider.Message{result("1"), result("2"), user("c"), user("d")}},
		{provider.RoleAssistant, []provider.Message{thought, asked}},
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

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// failing is a reader that adds a chunk and fails.
type failing struct{ with error }

func (f failing) Event(m *converse.Message, _ converse.ServerEvent) error {
	m.Usage(provider.Usage{InputTokens: 1})
	return f.with
}

func (failing) Complete(bool) bool { return false }

// ask returns the response with a body, or the error of the request if there is none.
func ask(ctx context.Context, body io.ReadCloser, r converse.Reader) (provider.EventStream, error) {
	api := &converse.API{Name: "vendor", RequestID: func(http.Header) string { return "" }}
	api.HTTP = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		if body == nil {
			return nil, io.ErrUnexpectedEOF
		}
		return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
	})}
	api.Translate = func(*provider.Request) (*converse.Call, error) {
		return &converse.Call{URL: "http://provider.invalid", Header: http.Header{}, Reader: r}, nil
	}
	return api.Stream(ctx, &provider.Request{})
}

// TestChunksComeBeforeTheError reads an event that is data and an error together.
func TestChunksComeBeforeTheError(t *testing.T) {
	broken := errors.New("broken")
	stream, err := ask(t.Context(), io.NopCloser(strings.NewReader("data: 1\n\n")), failing{broken})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := stream.Next(t.Context()); err != nil || c.Kind != provider.ChunkUsage {
		t.Errorf("got %v, %v, want the usage", c, err)
	}
	for range 2 {
		if _, err := stream.Next(t.Context()); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "vendor: ") {
			t.Errorf("got %v, want the explained error each time", err)
		}
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// TestContexts has a body that ignores contexts, and ends when it is closed.
func TestContexts(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	silent := func() provider.EventStream {
		body, _ := io.Pipe()
		stream, err := ask(t.Context(), body, failing{})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	if _, err := silent().Next(over); !errors.Is(err, context.Canceled) {
		t.Errorf("the context of Next: got %v", err)
	}
	stream := silent()
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("after Close: got %v", err)
	}
	if _, err := ask(over, nil, nil); !errors.Is(err, context.Canceled) || provider.Transient(err) {
		t.Errorf("the context of the request: got %v", err)
	}
}

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
