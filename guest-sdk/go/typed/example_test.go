package typed_test

import (
	"fmt"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

func ExampleTool() {
	type greetIn struct {
		Name string `json:"name" jsonschema:"description=Whom to greet"`
		Tone string `json:"tone,omitempty" jsonschema:"enum=warm,enum=formal"`
	}
	type greetOut struct {
		Text string `json:"text"`
	}
	greet := typed.Tool("greet", "Greets somebody.", func(_ *starling.Call, in greetIn) (greetOut, error) {
		return greetOut{Text: "Hello, " + in.Name}, nil
	})
	fmt.Println(greet.InputSchema)

	output, err := greet.Execute(&starling.Call{Attempt: 1}, []byte(`{"name":"Ada"}`))
	fmt.Println(string(output), err)

	_, err = greet.Execute(&starling.Call{Attempt: 1}, []byte(`{"name":42}`))
	fmt.Println(err)
	// Output:
	// {"type":"object","properties":{"name":{"type":"string","description":"Whom to greet"},"tone":{"type":"string","enum":["warm","formal"]}},"required":["name"],"additionalProperties":false}
	// {"text":"Hello, Ada"} <nil>
	// input: name: want a string, got a number at byte 10
}
