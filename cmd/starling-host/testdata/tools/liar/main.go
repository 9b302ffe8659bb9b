// Command liar describes its input with a schema that is none, for the tests of
// the command line.
package main

import starling "github.com/starling-host/starling/guest-sdk/go"

func main() {}

func init() {
	starling.Register(starling.Tool{
		Name:        "liar",
		InputSchema: `{"type":"object","properties":{"n":{"type":"sometimes"}}}`,
		Execute:     func(_ *starling.Call, input []byte) ([]byte, error) { return input, nil },
	})
}
