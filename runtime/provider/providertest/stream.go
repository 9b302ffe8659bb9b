package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

// maxChunks bounds the chunks read from one stream.
const maxChunks = 1 << 20

// Converse sends the request and reads the stream to its end. It closes the
// stream twice, which must do nothing worse than once.
func Converse(ctx context.Context, p provider.Provider, req *provider.Request) ([]provider.StreamChunk, error) {
	stream, err := p.Stream(ctx, req)
	if err != nil {
		return nil, err
	}
	chunks, err := read(ctx, stream)
	return chunks, errors.Join(err, stream.Close(), stream.Close())
}

// Chunks is [Converse] without the hash of the response.
func Chunks(ctx context.Context, p provider.Provider, req *provider.Request) ([]provider.StreamChunk, error) {
	chunks, err := Converse(ctx, p, req)
	for i := range chunks {
		chunks[i].RawResponseHash = nil
	}
	return chunks, err
}

// read returns the chunks of a stream up to its end. The error is the
// stream's, or describes how the stream breaks the contract.
func read(ctx context.Context, stream provider.EventStream) ([]provider.StreamChunk, error) {
	var chunks []provider.StreamChunk
	for range maxChunks {
		c, err := stream.Next(ctx)
		if err == nil {
			chunks = append(chunks, c)
			continue
		}
		if _, again := stream.Next(ctx); again == nil {
			return chunks, fmt.Errorf("a chunk after the error %v", err)
		} else if err == io.EOF && again != io.EOF {
			return chunks, fmt.Errorf("io.EOF, and after it %v", again)
		}
		if err != io.EOF {
			return chunks, err
		}
		return chunks, inOrder(chunks)
	}
	return chunks, errors.New("the stream does not end")
}

// inOrder checks what every stream keeps to: one end, which comes last, and tool
// uses that are started once, closed once and touched only in between.
func inOrder(chunks []provider.StreamChunk) error {
	open := map[string]bool{}
	for i, c := range chunks {
		if (c.Kind == provider.ChunkEnd) != (i == len(chunks)-1) {
			return fmt.Errorf("chunk %d of %d is %v", i+1, len(chunks), c.Kind)
		}
		if err := follow(open, c); err != nil {
			return fmt.Errorf("chunk %d: %w", i+1, err)
		}
	}
	for id, isOpen := range open {
		if isOpen {
			return fmt.Errorf("the tool use %q is not closed", id)
		}
	}
	if len(chunks) == 0 {
		return errors.New("no chunks")
	}
	return nil
}

// follow takes one chunk into account. A tool use that is closed stays in the map.
func follow(open map[string]bool, c provider.StreamChunk) error {
	isTool := slices.Contains([]provider.ChunkKind{provider.ChunkToolUseStart, provider.ChunkToolUseDelta, provider.ChunkToolUseEnd}, c.Kind)
	switch {
	case isTool != (c.ToolUse != nil) || (c.Kind == provider.ChunkUsage) != (c.Usage != nil):
		return fmt.Errorf("%v with the wrong fields", c.Kind)
	case !isTool:
		return nil
	}
	isOpen, known := open[c.ToolUse.CallID]
	start := c.Kind == provider.ChunkToolUseStart
	switch {
	case start && (known || c.ToolUse.CallID == "" || c.ToolUse.Name == ""):
		return fmt.Errorf("the tool use %q (%q) starts twice or lacks a name", c.ToolUse.CallID, c.ToolUse.Name)
	case !start && !isOpen:
		return fmt.Errorf("%v for %q, which is not open", c.Kind, c.ToolUse.CallID)
	}
	open[c.ToolUse.CallID] = c.Kind != provider.ChunkToolUseEnd
	return nil
}

// wanted are the chunks of a response whose bytes are sent.
func (r *recording) wanted(sent []byte) []provider.StreamChunk {
	want := slices.Clone(r.Want)
	sum := canon.Sum(sent)
	want[len(want)-1].RawResponseHash = sum[:]
	return want
}

// expect compares chunks.
func expect(t testing.TB, got, want []provider.StreamChunk) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong chunks (-want +got):\n%s", diff)
	}
}

// expectClass checks that err has the given class and no other, and that it can be shown to people.
func expectClass(t testing.TB, err, class error) bool {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want one of %v", class)
		return false
	}
	ok := true
	for _, c := range []error{provider.ErrRateLimit, provider.ErrAuth, provider.ErrServer, provider.ErrNetwork} {
		if errors.Is(err, c) != (c == class) {
			t.Errorf("got the error %v, want the class %v", err, class)
			ok = false
		}
	}
	text := err.Error()
	if len(text) > maxErrorText {
		t.Errorf("the error has %d bytes: %.200s", len(text), text)
	}
	if strings.Contains(text, Key) {
		t.Errorf("the error has the key in it: %s", text)
	}
	for _, word := range []string{"map[", "interface {}", "Go struct", "Go value", "types."} {
		if strings.Contains(text, word) {
			t.Errorf("the error speaks of the adapter's own types, %q: %s", word, text)
		}
	}
	return ok
}

// maxErrorText is generous for a sentence and small for a log.
const maxErrorText = 4096
