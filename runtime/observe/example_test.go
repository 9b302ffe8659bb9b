package observe_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/step"
)

// A program registers the metrics once, hands them to its runs, and serves them
// where Prometheus looks.
func ExampleNewMetrics() {
	registry := prometheus.NewRegistry()
	metrics := observe.NewMetrics(registry)
	metrics.KnowTools("search", "deploy")

	_ = step.Config{Metrics: metrics} // calls and appends of runs
	http.Handle("/metrics", observe.MetricsHandler(registry))
	families, err := registry.Gather()
	fmt.Println(len(families) > 0, err)
	// Output: true <nil>
}

// Without a provider of spans set, the global one makes none.
func ExampleNewTracer() {
	tracer := observe.NewTracer(otel.GetTracerProvider())
	_, run := tracer.StartRun(context.Background(), "R1", nil)
	defer run.End()

	_ = step.Config{RunID: "R1", Tracer: run} // turns and calls of the run
	// Output:
}
