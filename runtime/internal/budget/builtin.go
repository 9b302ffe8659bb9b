package budget

import "maps"

// PricesAsOf is the day for which the figures in [Builtin] were collected, partly
// from reports about the vendors' pages, which are authoritative.
const PricesAsOf = "2026-11-18"

// Builtin returns the list prices of public models on [PricesAsOf]: standard processing of text at
// the vendor's own API. Batches, priority, regional endpoints, audio and cache storage are not
// included. If a vendor has announced the end of a reduced price, the table has the full price, so
// that a cap trips too early rather than too late.
func Builtin() Prices {
	all := Prices{}
	for _, vendor := range []map[string]Price{openAI(), anthropic(), google(), amazon(), onBedrock()} {
		maps.Copy(all, vendor)
	}
	return all
}

// cached is a price whose caches are read for the given rate and filled for the
// price of input.
func cached(input, output, read float64) Price {
	return Price{Rates: Rates{Input: input, Output: output, CacheRead: read, CacheWrite: input}}
}

// written is a price whose caches are filled for a quarter more than input.
func written(input, output, read float64) Price {
	p := cached(input, output, read)
	p.CacheWrite = input + input/4
	return p
}

// longer adds the rates of prompts above a number of tokens: twice the input
// rates and one and a half times the output rate, as at OpenAI and Google.
func (p Price) longer(above int64) Price {
	p.LongPrompt = above
	p.Long = Rates{Input: 2 * p.Input, Output: p.Output * 3 / 2, CacheRead: 2 * p.CacheRead, CacheWrite: 2 * p.CacheWrite}
	return p
}

// openAI has the prices of developers.openai.com/api/docs/pricing.
func openAI() map[string]Price {
	const long = 272_000
	return map[string]Price{
		"gpt-6.2-astra": written(8, 40, 0.40).longer(long),
		"gpt-6.2-sol":   written(2, 10, 0.10).longer(long),
		"gpt-6.1-sol":   written(2, 10, 0.10).longer(long),
		"gpt-6-astra":   written(10, 50, 1).longer(long),
		"gpt-6-sol":     written(2, 10, 0.20).longer(long),
		"gpt-6-luna":    written(0.10, 0.50, 0.01).longer(long),
		"gpt-5.6":       written(4, 20, 0.40).longer(long),
		"gpt-5.6-sol":   written(4, 20, 0.40).longer(long),
		"gpt-5.6-terra": written(2, 12, 0.20).longer(long),
		"gpt-5.6-luna":  written(0.20, 1.20, 0.02).longer(long),
		"gpt-5.5":       cached(5, 30, 0.50).longer(long),
		"gpt-5.5-pro":   cached(30, 180, 30).longer(long),
		"gpt-5.4":       cached(2.50, 15, 0.25).longer(long),
		"gpt-5.4-pro":   cached(30, 180, 30).longer(long),
		"gpt-5.4-mini":  cached(0.75, 4.50, 0.075),
		"gpt-5.4-nano":  cached(0.20, 1.25, 0.02),
		"gpt-5.3-codex": cached(1.75, 14, 0.175),
		"gpt-5.2":       cached(1.75, 14, 0.175),
		"gpt-5.2-codex": cached(1.75, 14, 0.175),
		"gpt-5.2-pro":   cached(21, 168, 21),
		"gpt-5.1":       cached(1.25, 10, 0.125),
		"gpt-5.1-codex": cached(1.25, 10, 0.125),
		"gpt-5":         cached(1.25, 10, 0.125),
		"gpt-5-chat":    cached(1.25, 10, 0.125),
		"gpt-5-codex":   cached(1.25, 10, 0.125),
		"gpt-5-mini":    cached(0.25, 2, 0.025),
		"gpt-5-nano":    cached(0.05, 0.40, 0.005),
		"gpt-5-pro":     cached(15, 120, 15),
		"gpt-4.1":       cached(2, 8, 0.50),
		"gpt-4.1-mini":  cached(0.40, 1.60, 0.10),
		"gpt-4.1-nano":  cached(0.10, 0.40, 0.025),
		"gpt-4o":        cached(2.50, 10, 1.25),

		// The first gpt-4o has kept its price.
		"gpt-4o-2024-05-13": cached(5, 15, 5),

		"gpt-4o-mini": cached(0.15, 0.60, 0.075),
		"o4-mini":     cached(1.10, 4.40, 0.275),
		"o3":          cached(2, 8, 0.50),
		"o3-pro":      cached(20, 80, 20),
		"o3-mini":     cached(1.10, 4.40, 0.55),
		"o1":          cached(15, 60, 7.50),
	}
}

// anthropic has the prices of platform.claude.com/docs/en/about-claude/pricing,
// with caches that are held for five minutes.
func anthropic() map[string]Price {
	haiku := written(0.10, 0.50, 0.01)
	haiku.LongPrompt, haiku.Long = 100_000, written(0.50, 2.50, 0.05).Rates
	return map[string]Price{
		"claude-fable-5-1":  written(10, 50, 0.25),
		"claude-fable-5":    written(10, 50, 1),
		"claude-opus-5-5":   written(4, 20, 0.20),
		"claude-opus-5":     written(5, 25, 0.50),
		"claude-opus-4-8":   written(5, 25, 0.50),
		"claude-opus-4-7":   written(5, 25, 0.50),
		"claude-opus-4-6":   written(5, 25, 0.50),
		"claude-opus-4-5":   written(5, 25, 0.50),
		"claude-opus-4-1":   written(15, 75, 1.50),
		"claude-opus-4":     written(15, 75, 1.50),
		"claude-opus-4-0":   written(15, 75, 1.50),
		"claude-sonnet-5-5": written(2, 10, 0.10),
		"claude-sonnet-5":   written(2, 10, 0.20),
		"claude-sonnet-4-6": written(3, 15, 0.30),
		"claude-sonnet-4-5": written(3, 15, 0.30),
		"claude-sonnet-4":   written(3, 15, 0.30),
		"claude-sonnet-4-0": written(3, 15, 0.30),
		"claude-3-7-sonnet": written(3, 15, 0.30),
		"claude-3-5-sonnet": written(3, 15, 0.30),
		"claude-haiku-5-5":  haiku,
		"claude-haiku-4-5":  written(1, 5, 0.10),
		"claude-3-5-haiku":  written(0.80, 4, 0.08),
		"claude-3-haiku":    {Rates: Rates{Input: 0.25, Output: 1.25, CacheRead: 0.03, CacheWrite: 0.30}},
	}
}

// google has the prices of ai.google.dev/gemini-api/docs/pricing. Caches made
// explicitly cost by the hour besides, which no count of tokens tells.
func google() map[string]Price {
	const long = 200_000
	return map[string]Price{
		"gemini-3.8-flash":                   cached(1.50, 7.50, 0.15),
		"gemini-3.7-flash":                   cached(1.50, 7.50, 0.15),
		"gemini-3.6-flash":                   cached(1.50, 7.50, 0.15),
		"gemini-3.5-flash":                   cached(1.50, 9, 0.15),
		"gemini-3.5-flash-lite":              cached(0.30, 2.50, 0.03),
		"gemini-3.1-pro":                     cached(2, 12, 0.20).longer(long),
		"gemini-3.1-pro-preview-customtools": cached(2, 12, 0.20).longer(long),
		"gemini-3.1-flash-lite":              cached(0.25, 1.50, 0.025),
		"gemini-3-pro":                       cached(2, 12, 0.20).longer(long),
		"gemini-3-flash":                     cached(0.50, 3, 0.05),
		"gemini-2.5-pro":                     cached(1.25, 10, 0.125).longer(long),
		"gemini-2.5-flash":                   cached(0.30, 2.50, 0.03),
		"gemini-2.5-flash-lite":              cached(0.10, 0.40, 0.01),
	}
}

// amazon has the prices of aws.amazon.com/bedrock/pricing, for Amazon's own models.
func amazon() map[string]Price {
	return map[string]Price{
		"nova-2-lite":  cached(0.30, 2.50, 0.075),
		"nova-premier": cached(2.50, 12.50, 0.625),
		"nova-pro":     cached(0.80, 3.20, 0.20),
		"nova-lite":    cached(0.06, 0.24, 0.015),
		"nova-micro":   cached(0.035, 0.14, 0.00875),
	}
}

// onBedrock has the prices of aws.amazon.com/bedrock/pricing in the regions of the USA, for
// the models of Meta and Mistral and for Titan. Llama's are from the page on 2025-07-20;
// Mistral's and Titan's from several reports of 2025 and 2026. None of these models has a
// cache. Their names are Bedrock's own; only Mistral uses the same ones, at the same price.
func onBedrock() map[string]Price {
	flat := func(input, output float64) Price { return cached(input, output, input) }
	return map[string]Price{
		"llama4-maverick-17b-instruct": flat(0.24, 0.97),
		"llama4-scout-17b-instruct":    flat(0.17, 0.66),
		"llama3-3-70b-instruct":        flat(0.72, 0.72),
		"llama3-2-90b-instruct":        flat(0.72, 0.72),
		"llama3-2-11b-instruct":        flat(0.16, 0.16),
		"llama3-2-3b-instruct":         flat(0.15, 0.15),
		"llama3-2-1b-instruct":         flat(0.10, 0.10),
		"llama3-1-405b-instruct":       flat(2.40, 2.40),
		"llama3-1-70b-instruct":        flat(0.72, 0.72),
		"llama3-1-8b-instruct":         flat(0.22, 0.22),
		"llama3-70b-instruct":          flat(2.65, 3.50),
		"llama3-8b-instruct":           flat(0.30, 0.60),

		"mistral-large-3-675b-instruct": flat(0.50, 1.50),
		"mistral-large-2407":            flat(2, 6),
		"mistral-large-2402":            flat(4, 12),

		"titan-text-premier": flat(0.50, 1.50),
		"titan-text-express": flat(0.20, 0.60),
		"titan-text-lite":    flat(0.15, 0.20),
	}
}
