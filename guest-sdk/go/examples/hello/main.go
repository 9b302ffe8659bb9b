// Hello greets somebody.
package main

import (
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
	tool := typed.Tool("hello", "Greets somebody by name.", hello)
	tool.Idempotent = true
	starling.Register(tool)
}

func main() {}

func hello(_ *starling.Call, in input) (output, error) {
	return output{"Hello, " + in.Name + "."}, nil
}
