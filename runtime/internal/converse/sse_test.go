package converse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/runtime/internal/converse"
)

func readAll(r io.Reader) ([]string, error) {
	in := converse.NewEventReader(r)
	var got []string
	for range 1 << 20 {
		ev, err := in.Next()
		if err != nil {
			return got, err
		}
		got = append(got, fmt.Sprintf("%s|%s", ev.Name, ev.Data))
	}
	return got, errors.New("no end")
}

// TestStreams has the examples of the standard and typical streams of models.
func TestStreams(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"one event", "data: a\n\n", []string{"|a"}},
		{"several lines", "data: YHOO\ndata: +2\ndata: 10\n\n", []string{"|YHOO\n+2\n10"}},
		{"comment and fields without data", ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n", []string{"|first event", "|second event", "| third event"}},
		{"empty data, and an event without an end", "data\n\ndata\ndata\n\ndata:", []string{"|", "|\n"}},
		{"one space is taken away", "data:test\n\ndata: test\n\n", []string{"|test", "|test"}},
		{"named", "event: message_stop\ndata: {}\n\ndata: x\n\n", []string{"message_stop|{}", "|x"}},
		{"a name without data does not stay", "event: ping\n\ndata: x\n\n", []string{"|x"}},
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []string{"|a\nb", "|c"}},
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []string{"|a\nb", "|c"}},
		{"mixed ends", "data: a\r\ndata: b\n\rdata: c\r\r\n", []string{"|a\nb", "|c"}},
		{"byte order mark", "\uFEFFdata: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"a mark elsewhere is part of a name", "data: a\n\n\uFEFFdata: b\n\n", []string{"|a"}},
		{"keep-alive inside", ": keep-alive\n\ndata: a\n: keep-alive\ndata: b\n\n: OPENROUTER PROCESSING\n\n", []string{"|a\nb"}},
		{"colons in the value", "data: a: b: c\n\n", []string{"|a: b: c"}},
		{"unknown field", "dat: x\ndata: a\nretry: 10\n\n", []string{"|a"}},
		{"no empty line at the end", "data: a\n\ndata: [DONE]\n", []string{"|a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(tc.in), "bytes": iotest.OneByteReader(strings.NewReader(tc.in)), "end with data": iotest.DataErrReader(strings.NewReader(tc.in)),
			} {
				got, err := readAll(r)
				if err != io.EOF {
					t.Errorf("%s: %v", name, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestSSELineEndsAtCR: a line is complete at its CR, since the byte after it may be a
// minute away, even if it turns out to be the LF of a CRLF.
func TestSSELineEndsAtCR(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n", "\r\n\r"} {
		broken := io.MultiReader(strings.NewReader("data: a"+end), iotest.ErrReader(io.ErrClosedPipe))
		ev, err := converse.NewEventReader(broken).Next()
		if err != nil || string(ev.Data) != "a" {
			t.Errorf("%q: got %q, %v", end, ev.Data, err)
		}
	}
}

func TestErrorsOfTheReaderBelow(t *testing.T) {
	r := io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(io.ErrUnexpectedEOF))
	got, err := readAll(r)
	if len(got) != 1 || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v", got, err)
	}
}

// endless is a line, or lines, that go on.
type endless struct{ text string }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e.text) <= len(p) {
		n += copy(p[n:], e.text)
	}
	return n, nil
}

func TestBounds(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"endless line":     endless{"x"},
		"endless event":    endless{"data: x\n"},
		"endless comments": endless{": x\n"},
	} {
		if _, err := readAll(r); !errors.Is(err, converse.ErrEventTooLong) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	line := "data: " + strings.Repeat("x", converse.MaxEvent-len("data: \n\n"))
	if ev, err := converse.NewEventReader(strings.NewReader(line + "\n\n")).Next(); err != nil || len(ev.Data) != len(line)-6 {
		t.Errorf("an event of MaxEvent bytes: %d, %v", len(ev.Data), err)
	}
}

// FuzzReader checks that the chunking of the bytes makes no difference, and
// that no data is longer than the input.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{"data: a\r\n\r\n", "event: x\ndata:\n\n", ": c\rdata: 1\r\r", "\uFEFFdata: [DONE]\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := readAll(bytes.NewReader(in))
		if err != io.EOF {
			t.Fatal(err)
		}
		pieces, _ := readAll(iotest.OneByteReader(bytes.NewReader(in)))
		if diff := cmp.Diff(whole, pieces); diff != "" {
			t.Fatal(diff)
		}
		if n := len(strings.Join(whole, "")); n > len(in) {
			t.Fatalf("%d bytes of %d", n, len(in))
		}
	})
}
