package budget

import (
	"sync"

	"github.com/starling-host/starling/runtime/provider"
)

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
// is registered. Whoever has a dollar cap logs it, because the cap does nothing.
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
