// Dice is a tool that rolls dice. It shows the two host calls that need no policy:
// randomness and the clock.
package main

import (
	"fmt"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

// The bounds on one call. Each roll is one recorded draw of randomness, and a
// host records a thousand effects of a call by default.
const (
	maxRolls = 900
	minSides = 2
	maxSides = 1_000_000
)

// input has pointers because 0 rolls are a mistake and no rolls mean 1.
type input struct {
	Rolls *int `json:"rolls,omitempty" jsonschema:"description=How many times to roll, from 1 to 900. Without it: 1"`
	Sides *int `json:"sides,omitempty" jsonschema:"description=Sides of the die, from 2 to 1000000. Without it: 6"`
}

type output struct {
	Rolls    []int  `json:"rolls"`
	Total    int    `json:"total"`
	RolledAt string `json:"rolled_at"`
}

func init() {
	dice := typed.Tool("dice", "Roll fair dice. Answers with each roll, their total, and the time in UTC.", roll)
	dice.Idempotent = true
	starling.Register(dice)
}

func main() {}

func roll(_ *starling.Call, in input) (output, error) {
	rolls, err := within("rolls", in.Rolls, 1, 1, maxRolls)
	if err != nil {
		return output{}, err
	}
	sides, err := within("sides", in.Sides, 6, minSides, maxSides)
	if err != nil {
		return output{}, err
	}
	out := output{Rolls: make([]int, rolls)}
	for i := range out.Rolls {
		out.Rolls[i] = 1 + int(below(uint64(sides), starling.Random))
		out.Total += out.Rolls[i]
	}
	out.RolledAt = time.Unix(0, starling.Now()).UTC().Format(time.RFC3339)
	return out, nil
}

func within(name string, value *int, fallback, least, most int) (int, error) {
	if value == nil {
		return fallback, nil
	}
	if *value < least || *value > most {
		return 0, starling.Discard(fmt.Errorf("%s is %d: it must be from %d to %d", name, *value, least, most))
	}
	return *value, nil
}

// below returns a uniform number in [0, n). The 2^64 mod n smallest draws are
// rejected: what is left is a multiple of n, so that no remainder is favoured.
func below(n uint64, draw func() uint64) uint64 {
	rejected := -n % n // 2^64 mod n, in arithmetic modulo 2^64
	for {
		if x := draw(); x >= rejected {
			return x % n
		}
	}
}
