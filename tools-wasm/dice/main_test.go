package main

import (
	"encoding/json"
	"math"
	"math/bits"
	"testing"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
	"pgregory.net/rapid"
)

// draws returns the numbers one after another.
func draws(numbers ...uint64) func() uint64 {
	return func() uint64 {
		next := numbers[0]
		numbers = numbers[1:]
		return next
	}
}

func TestDice(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.FixedZone("", 7200))
	for _, c := range []struct {
		name   string
		random func() uint64
		input  string
		want   string
	}{
		{"one roll of six sides by default, the draw 3 being rejected", draws(3, 10), `{}`, `{"rolls":[5],"total":5,"rolled_at":"2026-05-06T05:08:09Z"}`},
		{"two rolls of twenty sides", draws(104, 111), `{"rolls":2,"sides":20}`, `{"rolls":[5,12],"total":17,"rolled_at":"2026-05-06T05:08:09Z"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := starlingtest.Host{Now: now, Random: c.random}
			if got := host.Call(t, "dice", c.input); got.Failure != nil || got.Output != c.want {
				t.Errorf("got %s %v\nwant %s", got.Output, got.Failure, c.want)
			}
		})
	}
}

func TestDiceRefuses(t *testing.T) {
	for _, c := range []struct{ name, input, want string }{
		{"no rolls", `{"rolls":0}`, "rolls is 0: it must be from 1 to 900"},
		{"too many rolls", `{"rolls":901}`, "rolls is 901: it must be from 1 to 900"},
		{"a die with one side", `{"sides":1}`, "sides is 1: it must be from 2 to 1000000"},
		{"too many sides", `{"sides":1000001}`, "sides is 1000001: it must be from 2 to 1000000"},
		{"half a roll", `{"rolls":0.5}`, "input: rolls: want an integer, got a number 0.5 at byte 12"},
		{"a misspelt member", `{"roll":1}`, `input: unknown field "roll"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := starlingtest.Host{}.Call(t, "dice", c.input)
			if got.Failure == nil || got.Failure.Kind != starling.KindDiscard || got.Failure.Error() != c.want {
				t.Errorf("got %s %v", got.Output, got.Failure)
			}
		})
	}
}

// TestBelowRejectsExactlyTheRemainder: the number of accepted draws is a
// multiple of n, and the draws next to the border fall on its two sides.
func TestBelowRejectsExactlyTheRemainder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, math.MaxUint64).Draw(t, "n")
		_, remainder := bits.Div64(1%n, 0, n) // 2^64 mod n
		if n == 1 {
			remainder = 0
		}
		if got := below(n, draws(remainder)); got != remainder%n {
			t.Fatalf("the draw %d became %d", remainder, got)
		}
		if remainder > 0 {
			if got := below(n, draws(0, remainder-1, math.MaxUint64)); got != math.MaxUint64%n {
				t.Fatalf("a draw below %d was accepted: %d", remainder, got)
			}
		}
	})
}

func TestEveryFaceAppears(t *testing.T) {
	got := starlingtest.Host{}.Call(t, "dice", `{"rolls":900}`)
	var out output
	if err := json.Unmarshal([]byte(got.Output), &out); err != nil {
		t.Fatal(err)
	}
	faces := map[int]int{}
	for _, face := range out.Rolls {
		faces[face]++
	}
	for face := 1; face <= 6; face++ {
		if faces[face] == 0 {
			t.Errorf("no %d in %v", face, out.Rolls)
		}
	}
	if len(faces) != 6 {
		t.Errorf("faces %v", faces)
	}
}
