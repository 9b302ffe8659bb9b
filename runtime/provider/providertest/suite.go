package providertest

import (
	"net/http"
	"os"
	"testing"

	"github.com/starling-host/starling/runtime/provider"
)

// Key is the secret to construct providers with. It must not be in any error.
const Key = "sk-providertest-0123456789"

// Suite has the bodies that an adapter's vendor sends, and the expected chunks.
type Suite struct {
	// New returns a provider that sends its requests to url, a scheme and a host
	// without a path, through client.
	New func(t testing.TB, url string, client *http.Client) provider.Provider

	// ContentType is the transcripts' content type, such as "text/event-stream".
	ContentType string

	// Transcripts are complete responses, at least one.
	Transcripts []Transcript

	// Failure is how the vendor refuses a request.
	Failure Failure

	// Broken are bodies of status 200 that are wrong in other ways than by
	// stopping early.
	Broken []Broken

	// Empty are complete bodies of status 200, by their stop reasons, in which the model
	// neither says anything nor calls a tool. A run asks again: the adapter must add nothing.
	Empty map[string]string

	// Golden is a file with the request that the adapter makes of
	// [RichRequest], see there. The tests write it when they run with -update.
	Golden string

	// Headers are the headers of the request that are part of Golden.
	Headers []string

	// Params are options of the request in Golden: a value that encodes as a
	// CBOR map, or nil.
	Params any
}

// Transcript is a complete response of status 200.
type Transcript struct {
	Name   string
	File   string      // holds the body as it comes over the wire
	Header http.Header // of the response, beside the content type

	// Terminal is text of the last event that a complete response must have,
	// such as "[DONE]". It is looked for from the end of the body.
	Terminal string

	// Request is the request sent; nil means a short question.
	Request *provider.Request

	// Want are the chunks. The suite fills in RawResponseHash.
	Want []provider.StreamChunk
}

// Failure is the body of a response that is not 200.
type Failure struct {
	ContentType string // "" means "application/json"
	Header      http.Header
	Body        string
	Want        string // text that the error has to contain
}

// Broken is a body of status 200 that ends in an error.
type Broken struct {
	Name  string
	Body  string
	Want  string // text that the error has to contain: the fault
	Class error  // the class of package provider that the error wraps; nil means none
}

// recording is a transcript with its body.
type recording struct {
	Transcript
	body []byte
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Helper()
	if s.New == nil || s.ContentType == "" || len(s.Transcripts) == 0 || len(s.Empty) == 0 || s.Golden == "" || s.Failure.Body == "" {
		t.Fatal("providertest: a Suite needs New, ContentType, Transcripts, Empty, Failure and Golden")
	}
	recordings := s.load(t)
	t.Run("promises", func(t *testing.T) { s.promises(t) })
	for _, r := range recordings {
		t.Run(r.Name, func(t *testing.T) { s.transcript(t, r) })
	}
	t.Run("spoiled", func(t *testing.T) { s.spoiled(t, recordings) })
	for _, b := range s.Broken {
		t.Run("broken/"+b.Name, func(t *testing.T) { s.broken(t, b) })
	}
	t.Run("empty", s.empty)
	t.Run("statuses", s.statuses)
	t.Run("redirected", s.redirected)
	t.Run("no connection", s.refused)
	t.Run("reset", func(t *testing.T) { s.reset(t, recordings[0]) })
	t.Run("hanging", func(t *testing.T) { s.hanging(t, recordings[0]) })
	t.Run("concurrent", func(t *testing.T) { s.concurrent(t, recordings) })
	t.Run("request", s.request)
}

func (s *Suite) load(t *testing.T) []recording {
	t.Helper()
	list := make([]recording, 0, len(s.Transcripts))
	for _, tr := range s.Transcripts {
		body, err := os.ReadFile(tr.File)
		if err != nil {
			t.Fatal(err)
		}
		if tr.Request == nil {
			tr.Request = question("test-model")
		}
		if err := inOrder(tr.Want); err != nil {
			t.Fatalf("%s: the wanted chunks are not a valid stream: %v", tr.Name, err)
		}
		list = append(list, recording{tr, body})
	}
	return list
}

// question is the shortest request.
func question(model string) *provider.Request {
	return &provider.Request{Model: model, Messages: []provider.Message{{Role: provider.RoleUser, Content: "Hello?"}}}
}

// capabilities returns the capabilities of p. If p does not report any, it
// returns all but a cache's marks and the request id.
func capabilities(p provider.Provider) provider.Capabilities {
	if c, ok := p.(provider.Capabler); ok {
		return c.Capabilities()
	}
	return provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true}
}

// promises checks that the provider has a name, and that each capability occurs
// in a transcript.
func (s *Suite) promises(t *testing.T) {
	p := s.New(t, memoryURL, &http.Client{Transport: &memory{}})
	if info := p.Info(); info.ID == "" || info.APIVersion == "" {
		t.Errorf("got the info %+v, want an id and a version", info)
	}
	caps, seen := capabilities(p), map[string]bool{}
	for _, tr := range s.Transcripts {
		observe(tr.Want, seen)
	}
	for feature, promised := range map[string]bool{
		"text": true, "usage": true, "tool uses at the same time": caps.Tools, "reasoning": caps.Reasoning, "a request id": caps.RequestID,
	} {
		if promised && !seen[feature] {
			t.Errorf("no transcript has %s", feature)
		}
	}
}

func observe(chunks []provider.StreamChunk, seen map[string]bool) {
	uses := 0
	for _, c := range chunks {
		switch c.Kind {
		case provider.ChunkText:
			seen["text"] = true
		case provider.ChunkReasoning:
			seen["reasoning"] = true
		case provider.ChunkUsage:
			seen["usage"] = true
		case provider.ChunkToolUseStart:
			uses++
		case provider.ChunkEnd:
			seen["a request id"] = seen["a request id"] || c.RequestID != ""
		}
	}
	seen["tool uses at the same time"] = seen["tool uses at the same time"] || uses > 1
}
