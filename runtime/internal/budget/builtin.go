package budget

import (
	_ "embed"
	"strconv"
	"strings"
)

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
