// Oracle uses everything there is: it reads the clock, draws numbers, asks a server
// twice, and fails when the numbers say so. Messenger sends what it is told to.
// Repeater returns as many values as it is asked for.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func init() {
	starling.Register(starling.Tool{
		Name: "oracle", Description: "Asks a server, twice.", InputSchema: `{"type":"object"}`, Execute: execute,
	}, starling.Tool{
		Name: "messenger", Description: "Sends what it is told to send.", InputSchema: `{"type":"object"}`, Execute: send,
	}, starling.Tool{
		Name: "repeater", Description: "Returns one digit many times.", Execute: repeat,
		InputSchema:  `{"type":"object","properties":{"list":{"items":` + digit + `}}}`,
		OutputSchema: `{"type":"array","items":` + digit + `}`,
	})
}

// digit takes the host a microsecond for each of its values, and there are ten.
const digit = `{"enum":[9,8,7,6,5,4,3,2,1,0]}`

// repeat returns an array of n zeros.
func repeat(_ *starling.Call, input []byte) ([]byte, error) {
	var r struct {
		N int `json:"n"`
	}
	if err := json.Unmarshal(input, &r); err != nil {
		return nil, err
	}
	return []byte("[" + strings.Repeat("0,", r.N) + "0]"), nil
}

func main() {}

type request struct {
	URL   string `json:"url"`
	Moody bool   `json:"moody"` // it fails at random
}

func execute(_ *starling.Call, input []byte) ([]byte, error) {
	var r request
	if err := json.Unmarshal(input, &r); err != nil {
		return nil, err
	}
	began, mood := time.Now(), starling.Random()
	first, err := ask(r.URL + "/first")
	if err != nil {
		return nil, err
	}
	switch {
	case r.Moody && mood%4 == 0:
		return nil, errors.New("not in the mood")
	case r.Moody && mood%4 == 1:
		panic("in a bad mood")
	}
	second, err := ask(fmt.Sprint(r.URL, "/", mood))
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"at": began.UnixNano(), "mood": mood, "answers": []string{first, second}})
}

func ask(url string) (string, error) {
	response, err := starling.Get(url)
	if err != nil {
		return "", err
	}
	return string(response.Body), nil
}

// send makes requests that are written out, and returns the answers as they come. What
// begins with "log " it writes down.
func send(_ *starling.Call, input []byte) ([]byte, error) {
	var r struct{ Requests []string }
	if err := json.Unmarshal(input, &r); err != nil {
		return nil, err
	}
	var answers []string
	for _, request := range r.Requests {
		if text, ok := strings.CutPrefix(request, "log "); ok {
			print(text)
			continue
		}
		response, err := starling.HTTP([]byte(request))
		if err != nil {
			answers = append(answers, "error: "+err.Error())
			continue
		}
		answers = append(answers, string(response))
	}
	return json.Marshal(answers)
}
