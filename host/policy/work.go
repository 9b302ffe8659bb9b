package policy

import (
	"encoding/json"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// maxWork bounds what one side's decision about a call takes, in steps of about 10 ns.
// A model or a client writes the arguments, and a tenant its policy, so both can be as large
// as their limits allow. Nothing interrupts a decision, because it must not depend on when
// it is made.
const maxWork = 100_000_000

// work is how many steps are left.
type work int

// spend reports whether there were so many steps left.
func (w *work) spend(steps int) bool {
	*w -= work(min(steps, maxWork+1))
	return *w >= 0
}

// What comparing a number takes, in steps. To make one exact takes longest where it has
// many digits, or is a fraction.
const (
	integerWork  = 50
	fractionWork = 500
)

func numberWork(n json.Number) int {
	if strings.ContainsAny(string(n), ".eE") {
		return fractionWork
	}
	return integerWork + 3*len(n)
}

// identity returns a text that two values have in common if they are equal as JSON
// Schema has it: numbers by their value, texts by their characters, everything else by
// what is in it. When no steps are left, it is of no meaning.
func identity(v any, left *work) string { return string(identify(nil, v, left)) }

func identify(b []byte, v any, left *work) []byte {
	if !left.spend(20) {
		return b
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		left.spend(len(v) / 4)
		return strconv.AppendQuote(b, v)
	case json.Number:
		left.spend(numberWork(v))
		return append(b, numeral(v)...)
	case []any:
		b = append(b, '[')
		for _, element := range v {
			b = append(identify(b, element, left), ',')
		}
		return append(b, ']')
	case map[string]any:
		left.spend(20 * len(v))
		b = append(b, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b = append(strconv.AppendQuote(b, key), ':')
			b = append(identify(b, v[key], left), ',')
		}
		return append(b, '}')
	}
	return b
}

// numeral spells a number of a canonical document in one way: an integer is exact, and
// any other number is what a 64-bit float holds, which may be an integer as well.
func numeral(n json.Number) string {
	f, err := n.Float64()
	switch {
	case !strings.ContainsAny(string(n), ".eE"):
		return string(n)
	case err != nil:
		return "none" // and equal to nothing in JSON
	case f == 0:
		return "0" // of either sign
	case f == math.Trunc(f):
		return new(big.Float).SetFloat64(f).Text('f', 0)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
