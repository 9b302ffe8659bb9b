package budget_test

import (
	"errors"
	"fmt"

	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

func ExampleMeter() {
	meter := budget.NewMeter(budget.Limits{MaxUSD: 0.01})
	prices := budget.Builtin()
	for _, usage := range []provider.Usage{
		{InputTokens: 1200, OutputTokens: 1},
		{InputTokens: 1200, OutputTokens: 900},
	} {
		usd, _ := prices.Cost("anthropic/claude-sonnet-4.6", usage)
		var over *budget.Exceeded
		if errors.As(meter.Usage(usage, usd), &over) {
			fmt.Println(over)
		}
	}
	// Output: budget: usd exceeded (mid_stream): 0.0171 of 0.01
}
