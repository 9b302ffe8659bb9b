// Command order is a tool that does things which must not be done twice, for the
// tests of hosts that die.
package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func main() {}

func init() {
	starling.Register(starling.Tool{
		Name:        "order",
		Description: "Orders some items, one request for each.",
		InputSchema: `{"type":"object","required":["url","items"]}`,
		Execute:     order,
	})
}

// order posts to URL/RUN/NUMBER, one item after the other. Each request has what
// the answer before it said, and a random number.
func order(call *starling.Call, input []byte) ([]byte, error) {
	var in struct {
		URL   string
		Items int
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	answer := "nothing"
	for i := range in.Items {
		body := fmt.Sprintf("%s, %d, at %d", answer, starling.Random(), starling.Now())
		response, err := starling.Do(starling.Request{Method: "POST", URL: in.URL + "/" + call.RunID + "/" + strconv.Itoa(i), Body: []byte(body)})
		if err != nil {
			return nil, err
		}
		answer = string(response.Body)
	}
	return json.Marshal(answer)
}
