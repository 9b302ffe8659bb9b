package budget

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-host/starling/runtime/provider"
)

// Prices maps models to their prices.
type Prices map[string]Price

// Lookup returns the price of a model, and whether it is known. An id is looked
// up unchanged; then without a reseller's prefix ("anthropic/", Bedrock's
// "us.anthropic.", "models/"); then, piece by piece, without a suffix for a
// version of the same model ("-20251101", "-v1:0", "-latest"). What names
// another model, such as "-mini" or another minor version, is never taken away,
// because the price is another one too.
func (p Prices) Lookup(model string) (Price, bool) {
	if price, ok := p[model]; ok {
		return price, true
	}
	for name, more := bareName(model), true; more; name, more = shorten(name) {
		if price, ok := p[name]; ok {
			return price, true
		}
	}
	return Price{}, false
}

// Cost returns the cost of a response of the model in dollars, and whether
// the model is known. The same arguments give the same bits everywhere.
func (p Prices) Cost(model string, usage provider.Usage) (usd float64, known bool) {
	price, known := p.Lookup(model)
	return price.cost(usage).dollars(), known
}

// bareName takes away the path, the region and the vendor before a model's
// name, and spells the version of a Claude as its vendor does.
func bareName(model string) string {
	name := model[strings.LastIndex(model, "/")+1:]
	for {
		head, tail, ok := strings.Cut(name, ".")
		if !ok || head == "" || strings.ContainsAny(head, "0123456789") {
			break
		}
		name = tail
	}
	if strings.HasPrefix(name, "claude-") {
		return strings.ReplaceAll(name, ".", "-")
	}
	return name
}

// shorten takes the last piece off a name if it names a version.
func shorten(name string) (string, bool) {
	i := strings.LastIndexAny(name, "-@:")
	if i <= 0 || !namesVersion(name[i], name[i+1:]) {
		return name, false
	}
	return name[:i], true
}

// namesVersion reports whether a piece of a model's name is a date, a build or
// a stage. A single digit after a hyphen is not: it is the minor version of a
// model with another price.
func namesVersion(before byte, piece string) bool {
	switch piece {
	case "latest", "preview", "exp":
		return true
	}
	digits, isBuild := strings.CutPrefix(piece, "v")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	return isBuild || before != '-' || len(digits) > 1
}

// maxMissed bounds the number of unknown models that [Missing] has reported.
const maxMissed = 1024

// The prices of the process, which begin with [Builtin], and the models that Missing has reported.
var (
	mu     sync.Mutex // guards what follows
	prices = sync.OnceValue(Builtin)
	missed = map[string]bool{}
)

// RegisterPricing sets the price of a model in this process, in dollars per million tokens. The
// model is the exact id in requests. Cached tokens cost the same as other input. Models reported as
// unknown are reported again if they still are. It panics if the model is empty or a price is not
// within ±1000; zero and negative prices are allowed, for models of one's own.
func RegisterPricing(model string, inPerMtok, outPerMtok float64) {
	if model == "" || !(math.Abs(inPerMtok) <= maxRate && math.Abs(outPerMtok) <= maxRate) {
		panic(fmt.Sprintf("budget: price of %q: %v and %v dollars per million tokens are not within ±%d", model, inPerMtok, outPerMtok, maxRate))
	}
	mu.Lock()
	defer mu.Unlock()
	prices()[model] = Price{Rates: Rates{inPerMtok, outPerMtok, inPerMtok, inPerMtok}}
	clear(missed)
}

// Cost is [Prices.Cost] of the prices of the process.
func Cost(model string, usage provider.Usage) (usd float64, known bool) {
	mu.Lock()
	defer mu.Unlock()
	return prices().Cost(model, usage)
}

// Missing reports whether a warning is due that the model has no price: the
// first time that it is asked for such a model, and not again until something
// is registered. A run with a dollar cap logs it, because the cap does nothing.
// After 1024 unknown models it is silent.
func Missing(model string) bool {
	mu.Lock()
	defer mu.Unlock()
	if _, known := prices().Lookup(model); known || missed[model] || len(missed) >= maxMissed {
		return false
	}
	missed[model] = true
	return true
}

// Rates are US dollars per million tokens.
type Rates struct {
	Input      float64 // tokens not read from or written to a cache
	Output     float64 // with reasoning, which vendors count as output
	CacheRead  float64
	CacheWrite float64 // for the shortest time that the vendor sells
}

// Price is the price of a model.
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
// nearest amount for others. NaN becomes zero.
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

// cost returns the cost of a response. Invalid counts are clamped: they come
// from another machine.
func (p Price) cost(u provider.Usage) picos {
	rates := p.Rates
	if p.LongPrompt > 0 && u.InputTokens > p.LongPrompt {
		rates = p.Long
	}
	input := clamp(u.InputTokens, maxTokens)
	read := clamp(u.CacheReadTokens, input)
	write := clamp(u.CacheCreateTokens, input-read)
	at := func(tokens int64, rate float64) picos {
		return picos(tokens) * picos(math.Round(rate*picosPerMillionD))
	}
	return at(input-read-write, rates.Input) + at(read, rates.CacheRead) + at(write, rates.CacheWrite) + at(clamp(u.OutputTokens, maxTokens), rates.Output)
}

func clamp(n, most int64) int64 { return min(max(n, 0), most) }

// PricesAsOf is the day for which the figures in [Builtin] were collected, partly
// from reports about the vendors' pages, which are authoritative.
const PricesAsOf = "2026-11-18"

//go:embed prices.txt
var builtin string

// Builtin returns the list prices of public models on [PricesAsOf]: standard processing of text at
// the vendor's own API. Batches, priority, regional endpoints, audio and cache storage are not
// included. If a vendor has announced the end of a reduced price, the table has the full price, so
// that a cap trips too early rather than too late.
func Builtin() Prices {
	all := Prices{}
	for line := range strings.Lines(builtin) {
		model := strings.Fields(line)
		if len(model) == 0 || model[0] == "#" {
			continue
		}
		var n [9]float64
		for i, field := range model[1:] {
			var err error
			if n[i], err = strconv.ParseFloat(field, 64); err != nil {
				panic("budget: prices.txt: " + line)
			}
		}
		all[model[0]] = Price{Rates{n[0], n[1], n[2], n[3]}, int64(n[4]), Rates{n[5], n[6], n[7], n[8]}}
	}
	return all
}
