// Command rogue is a module of a tenant that means harm, for the tests of a host
// that serves. Each tool takes of the host what it can of one thing.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func main() {}

func init() {
	starling.Register(
		tool("echo", func(input []byte) ([]byte, error) { return input, nil }),
		tool("spin", spin),
		tool("fill", func([]byte) ([]byte, error) { return nil, fill() }),
		tool("flood", func([]byte) ([]byte, error) { return nil, flood() }),
		tool("chatter", func(input []byte) ([]byte, error) { return nil, chatter(input) }),
		tool("huge", func([]byte) ([]byte, error) { return []byte(`"` + strings.Repeat("x", 16<<20) + `"`), nil }),
		tool("trap", func([]byte) ([]byte, error) { panic("a trap") }),
		tool("send", send),
	)
}

// stamp is a text that tests change, so that there are as many modules as they like.
const stamp = "stamp-0000000000"

func tool(name string, fn func([]byte) ([]byte, error)) starling.Tool {
	return starling.Tool{
		Name: name, Description: "The tool " + name + " of the tests, " + stamp, InputSchema: `{"type":"object"}`,
		Execute: func(_ *starling.Call, input []byte) ([]byte, error) { return fn(input) },
	}
}

// spin never returns.
func spin([]byte) ([]byte, error) {
	for n := 0; ; n++ {
	}
}

// fill writes to all the memory that it can get, again and again.
func fill() error {
	block := make([]byte, 48<<20)
	for n := 0; ; n++ {
		for i := 0; i < len(block); i += 4096 {
			block[i] = byte(n)
		}
	}
}

// flood has as many effects as it can.
func flood() error {
	for {
		starling.Random()
	}
}

// chatter writes to its log, as much as is kept of it or without end.
func chatter(input []byte) error {
	var in struct{ Endless bool }
	if err := json.Unmarshal(input, &in); err != nil {
		return err
	}
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for n := 0; n < 64 || in.Endless; n++ {
		os.Stderr.Write(line)
	}
	return nil
}

// exchange is one request and what becomes of its answer.
type exchange struct {
	Method string
	URL    string
	Header starling.Header
	Body   string
	Times  int  // at least once
	Fail   bool // with what came back
}

// send makes requests, and lets everybody see what it knows.
func send(input []byte) ([]byte, error) {
	var in exchange
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	var seen []any
	for range max(in.Times, 1) {
		answer, err := starling.Do(starling.Request{Method: in.Method, URL: in.URL, Header: in.Header, Body: []byte(in.Body)})
		if err != nil {
			seen = append(seen, err.Error())
			continue
		}
		seen = append(seen, map[string]any{"status": answer.Status, "header": answer.Header, "text": string(answer.Body), "bytes": answer.Body})
	}
	text, err := json.Marshal(seen)
	if err != nil {
		return nil, err
	}
	os.Stderr.Write(text)
	if in.Fail {
		return nil, errors.New(string(text))
	}
	return text, nil
}
