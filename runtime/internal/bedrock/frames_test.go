package bedrock_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// frames encodes events as AWS sends them. A line is the type of an event and its
// payload; an exception has an exclamation mark before its type.
func frames(t testing.TB, lines string) []byte {
	t.Helper()
	var body bytes.Buffer
	for line := range strings.Lines(lines) {
		kind, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := eventstream.NewEncoder().Encode(&body, frame(kind, payload)); err != nil {
			t.Fatal(err)
		}
	}
	return body.Bytes()
}

func frame(kind, payload string) eventstream.Message {
	message, header := "event", ":event-type"
	if name, ok := strings.CutPrefix(kind, "!"); ok {
		kind, message, header = name, "exception", ":exception-type"
	}
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(header, eventstream.StringValue(kind))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	m.Headers.Set(":message-type", eventstream.StringValue(message))
	return m
}

// encoded writes the frames of a file with events to a file of its own.
func encoded(t testing.TB, file string) string {
	t.Helper()
	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(file)+".bin")
	if err := os.WriteFile(path, frames(t, string(lines)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
