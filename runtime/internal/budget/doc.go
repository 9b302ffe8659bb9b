// Package budget bounds a run's spending, and detects when it exceeds a bound.
//
// [Limits] are caps on the whole life of a run, not on a turn: on input and output
// tokens, on dollars, on time, and on the host resources of sandboxed tools. A [Meter]
// adds up the run's usage and returns an [*Exceeded] at the moment that a cap is passed:
//
//	input tokens           before a call, with an estimate of its tokens
//	output tokens, USD     on every count of tokens that a provider sends
//	wall clock             when the caller's deadline ends the run
//	fuel, effects, egress  between turns, over all calls of tools
//
// A Meter is a function of its inputs. It reads no clock and no price list, so a run
// that is replayed trips where it tripped, and [Resume] rebuilds the Meter of a run from
// its events. The counts of a response that a cap cut off are the one thing that no
// event has: there a replay takes the trip itself from the recording, with
// [Meter.Recorded].
//
// # Prices
//
// [Builtin] has the list prices of OpenAI, Anthropic, Google and Amazon as of
// [PricesAsOf]. Prices change: a recorded cost stays as logged, and nothing computes it
// again. The process has one price table, which begins with Builtin; [RegisterPricing]
// adds to it.
//
// A model that is in no table has no cost, and the dollar axis is not enforced
// for it: set the token axes as well.
//
// # Arithmetic
//
// A cost is the same float64 on every processor. Prices are held as whole millionths of
// a dollar per million tokens, so that a token costs a whole number of millionths of a
// millionth of a dollar. The cost of a turn is a sum of products of integers, and the
// only operation in floating point is the last one, a division, which IEEE 754 rounds
// correctly everywhere. A sum of costs is made in integers again.
package budget
