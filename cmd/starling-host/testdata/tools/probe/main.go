// Command probe is a module of several tools that misbehave in one way each,
// for the tests of the command line.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func main() {}

func init() {
	starling.Register(
		tool("echo", `{"type":"object"}`, func(input []byte) ([]byte, error) { return input, nil }),
		tool("strict", `{"type":"object","required":["name"],"additionalProperties":false,`+
			`"properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"integer"}}}}`,
			func(input []byte) ([]byte, error) { return input, nil }),
		tool("fail", `{"type":"object"}`, fail),
		tool("panic", `{"type":"object"}`, func([]byte) ([]byte, error) { panic("this tool panics") }),
		tool("deep", `{"type":"object"}`, deep),
		tool("spin", `{"type":"object"}`, spin),
		tool("huge", `{"type":"object"}`, huge),
		tool("hungry", `{"type":"object"}`, hungry),
		tool("hostile", `{"type":"object"}`, hostile),
		tool("customers", `{"type":"object"}`, customers),
		tool("post", `{"type":"object"}`, post),
		tool("get", `{"type":"object"}`, get),
	)
}

func tool(name, schema string, fn func([]byte) ([]byte, error)) starling.Tool {
	return starling.Tool{
		Name:        name,
		Description: "The tool " + name + " of the tests.",
		InputSchema: schema,
		Execute:     func(_ *starling.Call, input []byte) ([]byte, error) { return fn(input) },
	}
}

// request is the input of the tools that look into theirs.
type request struct {
	URL   string `json:"url"`
	Count int    `json:"count"`
	Why   string `json:"why"`
}

func read(input []byte) (request, error) {
	var r request
	err := json.Unmarshal(input, &r)
	return r, err
}

func fail(input []byte) ([]byte, error) {
	r, err := read(input)
	if err == nil {
		err = errors.New("this tool fails\x1b[31m in red" + r.Why)
	}
	return nil, err
}

// spin makes one request if it is told to, so that a test can tell when it is
// under way, and never returns.
func spin(input []byte) ([]byte, error) {
	r, err := read(input)
	if err != nil {
		return nil, err
	}
	if r.URL != "" {
		if _, err := starling.Get(r.URL); err != nil {
			return nil, err
		}
	}
	for n := 0; ; n++ {
	}
}

// deep calls itself as often as it is told to.
func deep(input []byte) ([]byte, error) {
	r, err := read(input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(descend(r.Count))
}

//go:noinline
func descend(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + descend(n-1)
}

// huge returns a hundred mebibytes.
func huge([]byte) ([]byte, error) {
	return []byte(`"` + strings.Repeat("x", 100<<20) + `"`), nil
}

// hungry wants four gibibytes of memory.
func hungry([]byte) ([]byte, error) {
	var all [][]byte
	for range 4 << 10 {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		all = append(all, block)
	}
	return json.Marshal(len(all))
}

// hostile logs and returns what a terminal should not obey.
func hostile([]byte) ([]byte, error) {
	fmt.Fprint(os.Stderr, "one\x1b[2Jline\nerror: not an error of the host\u202e\n")
	return []byte("{\"text\":\"\u202eright to left \x7f\"}"), nil
}

// customers looks up customers one by one and asks again when the server
// fails.
func customers(input []byte) ([]byte, error) {
	r, err := read(input)
	if err != nil {
		return nil, err
	}
	var names []string
	failures := 0
	for i := 1; i <= r.Count; {
		response, err := starling.Get(fmt.Sprintf("%s/customers/%d", r.URL, i))
		switch {
		case err != nil:
			return nil, err
		case response.Status == 500 && failures < 100:
			failures++
		case response.Status == 200:
			names = append(names, string(response.Body))
			i++
		default:
			return nil, fmt.Errorf("status %d", response.Status)
		}
	}
	return json.Marshal(map[string]any{"names": names, "failures": failures})
}

// get makes one request and returns the status.
func get(input []byte) ([]byte, error) {
	r, err := read(input)
	if err != nil {
		return nil, err
	}
	response, err := starling.Get(r.URL)
	if err != nil {
		return nil, err
	}
	return json.Marshal(response.Status)
}

// post makes a request that is not safe to repeat.
func post(input []byte) ([]byte, error) {
	r, err := read(input)
	if err != nil {
		return nil, err
	}
	response, err := starling.Do(starling.Request{Method: "POST", URL: r.URL + "/orders", Body: []byte("one of them")})
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(response.Body))
}
