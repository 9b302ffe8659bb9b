// Greet is the tool of the README.
package main

import (
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type input struct {
	Name string `json:"name" jsonschema:"description=Whom to greet"`
}

type output struct {
	Greeting string `json:"greeting"`
}

func init() {
	starling.Register(typed.Tool("greet", "Greets somebody, with the time of day.", greet))
}

func main() {}

func greet(_ *starling.Call, in input) (output, error) {
	return output{"Hello, " + in.Name + ". It is " + time.Now().UTC().Format("15:04") + "."}, nil
}
