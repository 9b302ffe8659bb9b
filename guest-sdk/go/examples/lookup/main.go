// Lookup fetches a customer from an HTTP API. It shows a secret, a retry, and failures that tell
// the host whether to try again.
package main

import (
	"encoding/json"
	"fmt"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type input struct {
	ID      string `json:"id"`
	BaseURL string `json:"base_url" jsonschema:"description=The address of the service"`
}

type customer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Plan string `json:"plan"`
}

func init() {
	tool := typed.Tool("lookup", "Looks up a customer by id.", lookup)
	tool.Idempotent = true
	starling.Register(tool)
}

func main() {}

func lookup(_ *starling.Call, in input) (customer, error) {
	request := starling.Request{
		URL:    in.BaseURL + "/customers/" + starling.PathEscape(in.ID),
		Header: starling.Header{{"Authorization", "Bearer {{secret:CUSTOMER_TOKEN}}"}},
	}
	return starling.SideEffect("customer/"+in.ID, func() (c customer, err error) {
		response, err := starling.Do(request)
		if err == nil && response.Status == 503 {
			response, err = starling.Do(request)
		}
		switch {
		case err != nil:
			return c, err
		case response.Status == 404:
			return c, starling.Discard(fmt.Errorf("there is no customer %s", in.ID))
		case response.Status != 200:
			return c, starling.Transient(fmt.Errorf("the service answers %d", response.Status))
		}
		return c, json.Unmarshal(response.Body, &c)
	})
}
