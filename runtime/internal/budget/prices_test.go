package budget_test

import (
	"math"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

func TestPricesAreDated(t *testing.T) {
	if _, err := time.Parse(time.DateOnly, budget.PricesAsOf); err != nil {
		t.Error(err)
	}
}

// TestBuiltinIsWhole looks for a number that a line of the table lacks.
func TestBuiltinIsWhole(t *testing.T) {
	for model, p := range budget.Builtin() {
		if r := p.Rates; r.Input <= 0 || r.Output < r.Input || r.CacheRead <= 0 || r.CacheWrite < r.CacheRead {
			t.Errorf("%s costs %v", model, r)
		}
		if r := p.Long; (p.LongPrompt > 0 || r != budget.Rates{}) && (p.LongPrompt < 1000 || r.Input <= 0 || r.Output < r.Input || r.CacheRead <= 0 || r.CacheWrite < r.CacheRead) {
			t.Errorf("%s costs %v above %d tokens", model, r, p.LongPrompt)
		}
	}
}

func TestCost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		model string
		usage provider.Usage
		want  float64
	}{
		{"what the Starling runtime recorded", "gpt-4o-mini", provider.Usage{InputTokens: 120, OutputTokens: 45}, 4.5e-05},
		{"nothing", "gpt-5", provider.Usage{}, 0},
		{"a million of each", "claude-opus-5", provider.Usage{InputTokens: 1e6, OutputTokens: 1e6}, 30},
		{"everything from the cache", "claude-opus-5", provider.Usage{InputTokens: 1e6, CacheReadTokens: 1e6}, 0.5},
		{"everything into the cache", "claude-opus-5", provider.Usage{InputTokens: 1e6, CacheCreateTokens: 1e6}, 6.25},
		{"a third each", "claude-opus-5", provider.Usage{InputTokens: 3e6, CacheReadTokens: 1e6, CacheCreateTokens: 1e6}, 11.75},
		{"the smallest rate", "nova-micro", provider.Usage{InputTokens: 1, CacheReadTokens: 1}, 8.75e-9},
		{"the longest short prompt", "gemini-2.5-pro", provider.Usage{InputTokens: 200_000, OutputTokens: 1000}, 0.26},
		{"the shortest long prompt", "gemini-2.5-pro", provider.Usage{InputTokens: 200_001, OutputTokens: 1000}, 0.5150025},
		{"a long prompt at rates of its own", "claude-haiku-5-5", provider.Usage{InputTokens: 200_000, OutputTokens: 1000}, 0.1025},
		{"counts below zero", "gpt-5", provider.Usage{InputTokens: -5, OutputTokens: -5, CacheReadTokens: -5, CacheCreateTokens: -5}, 0},
		{"more from the cache than came in", "claude-opus-5", provider.Usage{InputTokens: 1e6, CacheReadTokens: 9e6, CacheCreateTokens: 9e6}, 0.5},
		{"a count that no response has", "gpt-5", provider.Usage{OutputTokens: math.MaxInt64}, 21474.83648},
	} {
		got, known := budget.Builtin().Cost(tc.model, tc.usage)
		if !known || got != tc.want {
			t.Errorf("%s: got %v, %t, want %v", tc.name, got, known, tc.want)
		}
	}
	if got, known := budget.Builtin().Cost("nobody/nothing", provider.Usage{InputTokens: 1}); known || got != 0 {
		t.Errorf("an unknown model: %v, %t", got, known)
	}
}

func TestLookup(t *testing.T) {
	same := func(t *testing.T, id, model string) {
		t.Helper()
		got, known := budget.Builtin().Lookup(id)
		want, _ := budget.Builtin().Lookup(model)
		if !known || got != want {
			t.Errorf("%s: %v, %t, want the price of %s", id, got, known, model)
		}
	}
	for id, model := range map[string]string{
		"gpt-5-2025-08-07":                                "gpt-5",
		"gpt-5-chat-latest":                               "gpt-5-chat",
		"openai/gpt-5.5":                                  "gpt-5.5",
		"claude-opus-4-20250514":                          "claude-opus-4",
		"claude-opus-4-5-20251101":                        "claude-opus-4-5",
		"claude-opus-4-5@20251101":                        "claude-opus-4-5",
		"anthropic/claude-opus-4.5":                       "claude-opus-4-5",
		"openrouter/anthropic/claude-sonnet-4.6":          "claude-sonnet-4-6",
		"anthropic.claude-3-haiku-20240307-v1:0":          "claude-3-haiku",
		"us.anthropic.claude-opus-4-1-20250805-v1:0":      "claude-opus-4-1",
		"us-gov.anthropic.claude-3-haiku-20240307-v1:0":   "claude-3-haiku",
		"global.anthropic.claude-haiku-4-5-20251001-v1:0": "claude-haiku-4-5",
		"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-opus-4-1-20250805-v1:0": "claude-opus-4-1",
		"eu.amazon.nova-pro-v1:0":                        "nova-pro",
		"us.meta.llama3-1-70b-instruct-v1:0":             "llama3-1-70b-instruct",
		"meta.llama4-maverick-17b-instruct-v1:0":         "llama4-maverick-17b-instruct",
		"mistral.mistral-large-2402-v1:0":                "mistral-large-2402",
		"mistral.mistral-large-3-675b-instruct":          "mistral-large-3-675b-instruct",
		"amazon.titan-text-premier-v1:0":                 "titan-text-premier",
		"amazon.titan-text-express-v1":                   "titan-text-express",
		"bedrock/us-east-1/meta.llama3-8b-instruct-v1:0": "llama3-8b-instruct",
		"models/gemini-2.5-flash":                        "gemini-2.5-flash",
		"gemini-3-flash-preview":                         "gemini-3-flash",
		"gemini-2.5-flash-preview-05-20":                 "gemini-2.5-flash",
	} {
		same(t, id, model)
	}
	if a, _ := budget.Builtin().Lookup("gpt-4o-2024-05-13"); a.Input != 5 {
		t.Errorf("an id of its own lost to the name before its date: %v", a)
	}
	for _, id := range []string{
		"meta-llama/llama-3.1-70b-instruct", "llama3.1:70b", "mistral-large-latest", "mistral-large-2411", "meta.llama3-9-70b-instruct-v1:0",
		"", "/", ".", "-", "gpt", "gpt-5-mega", "gpt-5.9", "gpt-4o-audio-preview", "claude-opus-5-6", "claude-opus",
		"ft:gpt-4o-mini-2024-07-18:org::abc", "gemini-2.5-flash-preview-tts", "gpt-5:free", "gpt-5-", "claude-", strings.Repeat("-1", 10_000),
	} {
		if got, known := budget.Builtin().Lookup(id); known {
			t.Errorf("%.40q has the price %v", id, got)
		}
	}
}

// TestCostIsTheNearestFloat compares with arbitrary precision.
func TestCostIsTheNearestFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(-1e9, 1e9)
		in, out, read, write := micros.Draw(t, "in"), micros.Draw(t, "out"), micros.Draw(t, "read"), micros.Draw(t, "write")
		count := rapid.Int64Range(0, 1e6)
		u := provider.Usage{CacheReadTokens: count.Draw(t, "r"), CacheCreateTokens: count.Draw(t, "w"), OutputTokens: count.Draw(t, "o")}
		fresh := count.Draw(t, "f")
		u.InputTokens = fresh + u.CacheReadTokens + u.CacheCreateTokens
		rate := func(m int64) float64 { return float64(m) / 1e6 }
		prices := budget.Prices{"m": {Rates: budget.Rates{Input: rate(in), Output: rate(out), CacheRead: rate(read), CacheWrite: rate(write)}}}
		sum := new(big.Int)
		for _, part := range [][2]int64{{fresh, in}, {u.CacheReadTokens, read}, {u.CacheCreateTokens, write}, {u.OutputTokens, out}} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
		want, _ := new(big.Rat).SetFrac(sum, big.NewInt(1e12)).Float64()
		got, _ := prices.Cost("m", u)
		// Above 2^53 picodollars, 9007 dollars, the sum is rounded once before
		// it is divided.
		if exact := sum.CmpAbs(big.NewInt(1<<53)) <= 0; exact && got != want || math.Abs(got-want) > math.Abs(want)*0x1p-51 {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestMissingTellsOnce(t *testing.T) {
	ask := func(model string, want bool) {
		t.Helper()
		if got := budget.Missing(model); got != want {
			t.Errorf("Missing(%q) is %t", model, got)
		}
	}
	ask("gpt-5", false)
	ask("mine", true)
	ask("mine", false)
	ask("yours", true)
	budget.RegisterPricing("mine", 0, 0)
	ask("mine", false)
	ask("yours", true)
	ask("yours", false)
}

func TestPricesAreSafe(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				budget.Missing("m")
				budget.Cost("m", provider.Usage{InputTokens: 1})
				budget.RegisterPricing("m", 0, 0)
			}
		})
	}
	all.Wait()
}

func TestRegisterPricing(t *testing.T) {
	usage := provider.Usage{InputTokens: 2e6, OutputTokens: 1e6, CacheReadTokens: 1e6}
	if _, known := budget.Cost("my-finetune", usage); known || !budget.Missing("my-finetune") {
		t.Fatal("known before it was registered")
	}
	budget.RegisterPricing("my-finetune", 3, 5)
	if got, known := budget.Cost("my-finetune", usage); got != 11 || !known {
		t.Errorf("got %v, %t", got, known)
	}
	budget.RegisterPricing("my-finetune", -1, 0)
	if got, _ := budget.Cost("my-finetune", usage); got != -2 {
		t.Errorf("negative and zero rates: %v", got)
	}
	for _, refused := range []struct {
		model   string
		in, out float64
	}{{"my-finetune", math.NaN(), 0}, {"my-finetune", 0, math.Inf(1)}, {"my-finetune", 1000.1, 0}, {"my-finetune", 0, -1000.1}, {"", 0, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v did not panic", refused)
				}
			}()
			budget.RegisterPricing(refused.model, refused.in, refused.out)
		}()
	}
}
