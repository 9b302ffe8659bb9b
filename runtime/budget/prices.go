package budget

import (
	"errors"
	"fmt"
	"maps"
	"strings"

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
