package budget

import (
	"fmt"
	"math"

	"github.com/starling-host/starling/runtime/provider"
)

// Rates are US dollars per million tokens.
type Rates struct {
	Input      float64 // what is not read from or written to a cache
	Output     float64 // with reasoning, which vendors count as output
	CacheRead  float64
	CacheWrite float64 // for the shortest time that the vendor sells
}

// Price is what a model costs.
type Price struct {
	Rates

	// LongPrompt is the number of input tokens above which Long applies, to
	// all tokens of the request. Zero means that Rates always apply.
	LongPrompt int64
	Long       Rates
}

const (
	picosPerDollar   = 1e12
	picosPerMillionD = 1e6 // a dollar per million tokens, in picodollars per token

	// maxRate bounds a rate, and maxTokens one count of a turn. Together they
	// keep the cost of a turn within an int64 of picodollars.
	maxRate   = 1000
	maxTokens = 1 << 31
)

// picos is an amount of money in millionths of a millionth of a dollar.
type picos int64

// dollars is the one operation in floating point.
func (p picos) dollars() float64 { return float64(p) / picosPerDollar }

// toPicos is the inverse of dollars for amounts up to 2000 dollars, and the
// nearest amount for others. What is no number is nothing.
func toPicos(dollars float64) picos {
	const most = math.MaxInt64 / picosPerDollar
	switch {
	case math.IsNaN(dollars):
		return 0
	case dollars >= most:
		return math.MaxInt64
	case dollars <= -most:
		return math.MinInt64
	}
	return picos(math.Round(dollars * picosPerDollar))
}

// perToken are rates in picodollars per token.
type perToken struct{ input, output, cacheRead, cacheWrite picos }

func (r Rates) perToken() perToken {
	of := func(rate float64) picos { return picos(math.Round(rate * picosPerMillionD)) }
	return perToken{of(r.Input), of(r.Output), of(r.CacheRead), of(r.CacheWrite)}
}

// valid refuses rates that cannot be computed with. Zero and less are allowed:
// what a model of one's own costs is one's own business.
func (r Rates) valid() error {
	for _, rate := range []float64{r.Input, r.Output, r.CacheRead, r.CacheWrite} {
		if !(math.Abs(rate) <= maxRate) {
			return fmt.Errorf("a rate of %v dollars per million tokens is not within ±%d", rate, maxRate)
		}
	}
	return nil
}

// cost returns what a response costs. Counts that make no sense are brought
// into their bounds: they come from another machine.
func (p Price) cost(u provider.Usage) picos {
	rates := p.Rates
	if p.LongPrompt > 0 && u.InputTokens > p.LongPrompt {
		rates = p.Long
	}
	input := clamp(u.InputTokens, maxTokens)
	read := clamp(u.CacheReadTokens, input)
	write := clamp(u.CacheCreateTokens, input-read)
	each := rates.perToken()
	return picos(input-read-write)*each.input + picos(read)*each.cacheRead + picos(write)*each.cacheWrite +
		picos(clamp(u.OutputTokens, maxTokens))*each.output
}

func clamp(n, most int64) int64 { return min(max(n, 0), most) }
