package starling_test

import (
	"fmt"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

// A tool is a value with a function. In a module, init hands it to Register.
func ExampleTool() {
	greet := starling.Tool{
		Name:        "greet",
		Description: "Greets the caller.",
		Execute: func(call *starling.Call, _ []byte) ([]byte, error) {
			return fmt.Appendf(nil, `{"greeting":"Hello, at attempt %d"}`, call.Attempt), nil
		},
	}
	output, err := greet.Execute(&starling.Call{Attempt: 1}, []byte(`{}`))
	fmt.Println(string(output), err)
	// Output: {"greeting":"Hello, at attempt 1"} <nil>
}
