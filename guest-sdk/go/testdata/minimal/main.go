// The smallest tool: what it costs is what the SDK costs.
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
