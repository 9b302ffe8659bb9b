// Command draw-next is another version of draw: the die has other numbers,
// for the tests of the command line.
package main

import (
	"strconv"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func main() {}

func init() {
	starling.Register(starling.Tool{
		Name:         "draw",
		Description:  "Rolls a die and says when.",
		OutputSchema: `{"type":"object","required":["at","rolled"]}`,
		Execute: func(*starling.Call, []byte) ([]byte, error) {
			at, rolled := starling.Now(), starling.Random()%6+70
			return []byte(`{"at":` + strconv.FormatInt(at, 10) + `,"rolled":` + strconv.FormatUint(rolled, 10) + `}`), nil
		},
	})
}
