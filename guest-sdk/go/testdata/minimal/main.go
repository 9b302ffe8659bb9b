// The smallest tool: it costs as much as the SDK.
package main

import starling "github.com/starling-host/starling/guest-sdk/go"

func init() {
	starling.Register(starling.Tool{
		Name:        "echo",
		Description: "Answers with its input.",
		Execute:     func(_ *starling.Call, input []byte) ([]byte, error) { return input, nil },
	})
}

func main() {}
