// Package observe shows what runs do while they do it, as metrics and spans. It owns
// all their names, and is the only package that knows Prometheus and OpenTelemetry.
// Log records of runs come from package step, which hides the same things.
//
//	Metrics  counters and histograms for Prometheus; a [step.MetricsSink]
//	Tracer   one tree of spans per run, with the GenAI names of OpenTelemetry,
//	         below the span of the request that asked for it
//
// Both are optional: a nil *Metrics and a nil *Tracer do nothing.
//
// None of it is evidence: only the event log is. Observations may be sampled,
// dropped or lost with the process, and a replay is not observed at all.
//
// # What is never shown
//
// Prompts, answers, arguments, results and error texts contain the words of users
// and tools. They are only in the event log: here an error is its type, one of a
// closed set. The names of tools and models are shown.
//
// # Cardinality
//
// Each distinct label value costs memory in this process and in Prometheus for as
// long as either keeps it, and some of them come from a model, which may invent the
// name of a tool. So a tool or a model gets its own label only once it was announced
// with [Metrics.KnowTools] or [Metrics.KnowModels], or a call of it has succeeded,
// which never happens to an invented one. Only the first [MaxNames] of each get one,
// and of the tools only so many for each owner of a share, see [Metrics.Share].
// Everything else is counted as "other". All other labels are from closed sets.
package observe
