package budget

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"

	"github.com/starling-host/starling/runtime/provider"
)

// Prices says what models cost. It is immutable and safe for concurrent use.
// The zero value knows no model; see [Builtin] and [Prices.With].
type Prices struct{ byModel map[string]Price }

// With returns the prices with one more model, or with another price for it.
// The model is the exact id with which it is asked for. Rates are at most 1000
// dollars per million tokens; zero and negative ones are taken as they are.
func (p Prices) With(model string, price Price) (Prices, error) {
	if model == "" {
		return p, errors.New("budget: a price without a model")
	}
	for _, rates := range []Rates{price.Rates, price.Long} {
		if err := rates.valid(); err != nil {
			return p, fmt.Errorf("budget: price of %q: %w", model, err)
		}
	}
	more := maps.Clone(p.byModel)
	if more == nil {
		more = make(map[string]Price)
	}
	more[model] = price
	return Prices{more}, nil
}

// Lookup returns the price of a model, and whether it is known. An id is looked
// up as it is; then without what resellers put before it ("anthropic/", the
// "us.anthropic." of Bedrock, "models/"); then, piece by piece, without what
// names a version of the same model ("-20251101", "-v1:0", "-latest"). What
// names another model, such as "-mini" or another minor version, is never taken
// away, because the price is another one too.
func (p Prices) Lookup(model string) (Price, bool) {
	if price, ok := p.byModel[model]; ok {
		return price, true
	}
	for name, more := bareName(model), true; more; name, more = shorten(name) {
		if price, ok := p.byModel[name]; ok {
			return price, true
		}
	}
	return Price{}, false
}

// Cost returns what a response of the model costs in dollars, and whether the
// model is known. The same arguments give the same bits everywhere.
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

// maxMissed bounds how many unknown models a [Table] remembers.
const maxMissed = 1024

// Table is a set of prices that grows, and remembers for which models it has
// been asked in vain. It is safe for concurrent use. The zero value knows no
// model.
type Table struct {
	mu     sync.Mutex
	prices Prices              // guarded by mu
	missed map[string]struct{} // guarded by mu; models that Missing has told of
}

// NewTable returns a Table that begins with the given prices.
func NewTable(prices Prices) *Table { return &Table{prices: prices} }

// Register sets the price of a model; see [Prices.With]. Every model that was
// unknown until now is told of again if it still is.
func (t *Table) Register(model string, price Price) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	prices, err := t.prices.With(model, price)
	if err != nil {
		return err
	}
	t.prices, t.missed = prices, nil
	return nil
}

// Prices returns the prices as they are now.
func (t *Table) Prices() Prices {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.prices
}

// Missing reports whether a warning is due that the model has no price: the
// first time that it is asked for such a model, and not again until something
// is registered. A run with a dollar cap logs it, because the cap does nothing.
// After 1024 unknown models it is silent.
func (t *Table) Missing(model string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.prices.Lookup(model); known {
		return false
	}
	if _, told := t.missed[model]; told || len(t.missed) >= maxMissed {
		return false
	}
	if t.missed == nil {
		t.missed = make(map[string]struct{})
	}
	t.missed[model] = struct{}{}
	return true
}

var shared = sync.OnceValue(func() *Table { return NewTable(Builtin()) })

// Shared returns the Table of the process, which begins with [Builtin].
func Shared() *Table { return shared() }

// RegisterPricing sets the price of a model in the Table of the process, in
// dollars per million tokens. What is read from or written to a cache costs
// what other input costs; [Table.Register] can say otherwise. It panics if the
// model is empty or a price is not within ±1000.
func RegisterPricing(model string, inPerMtok, outPerMtok float64) {
	price := Price{Rates: Rates{Input: inPerMtok, Output: outPerMtok, CacheRead: inPerMtok, CacheWrite: inPerMtok}}
	if err := Shared().Register(model, price); err != nil {
		panic(err)
	}
}

// Cost is [Prices.Cost] of the Table of the process.
func Cost(model string, usage provider.Usage) (usd float64, known bool) {
	return Shared().Prices().Cost(model, usage)
}

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
