package serve

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/runtime/observe"
)

// flushTime bounds how long a host that ends waits for a collector to take the last
// spans.
const flushTime = 3 * time.Second

// openTraces returns what makes the spans of the host, or nil if they go nowhere. They wait
// for the collector in a queue of 2048 spans, and those that find it full are dropped, so
// that nothing else ever waits.
func (h *Host) openTraces(ctx context.Context) (*observe.Tracer, error) {
	if !tracesWanted(h.file.Traces, os.Getenv) {
		return nil, nil
	}
	client, err := newOTLPClient(string(h.file.Traces.Endpoint), os.Getenv)
	if err != nil {
		return nil, &SetupError{Err: fmt.Errorf("serve: traces: %w", err)}
	}
	exporter := otlptrace.NewUnstarted(client)
	who, err := resource.New(ctx, resource.WithAttributes(observe.Service("starling-host", h.o.Version, string(h.file.Queue.Host))...),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, &SetupError{Err: fmt.Errorf("serve: traces: %w", err), Hint: "look at OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME"}
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(who), sdktrace.WithBatcher(&delivery{SpanExporter: exporter, logger: h.logger})}
	// A part of all traces is chosen by their ids, so that every host chooses the same.
	// Whether the sender of a request wants its trace kept does not count: senders are
	// tenants, and cannot hide from the operator.
	if part := float64(h.file.Traces.Sample); part > 0 {
		options = append(options, sdktrace.WithSampler(sdktrace.TraceIDRatioBased(part)))
	} else if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sdktrace.AlwaysSample()))
	}
	provider := sdktrace.NewTracerProvider(options...)
	h.onClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			h.logger.Warn("the last spans were not delivered", "error", err.Error())
		}
	})
	return observe.NewTracer(provider), nil
}

// tracesWanted reports whether the file or the environment names a collector.
func tracesWanted(t FileTraces, getenv func(string) string) bool {
	switch {
	case t.Off || getenv("OTEL_SDK_DISABLED") == "true":
		return false
	case t.Endpoint != "":
		return true
	case getenv("OTEL_TRACES_EXPORTER") == "none":
		return false
	}
	return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// delivery logs when spans begin to be lost, and when they arrive again, rather than for
// each batch. It is used by one goroutine.
type delivery struct {
	sdktrace.SpanExporter
	logger  *slog.Logger
	failing bool
}

// ExportSpans implements [sdktrace.SpanExporter].
func (d *delivery) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := d.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !d.failing:
		const most = 300 // the error may repeat what a server said
		text := err.Error()
		if len(text) > most {
			text = fmt.Sprintf("%s... (%s)", strings.ToValidUTF8(text[:most], ""), starling.Plural(len(text), "byte"))
		}
		d.logger.Warn("spans are not delivered", "error", text)
	case err == nil && d.failing:
		d.logger.Info("spans are delivered again")
	}
	d.failing = err != nil
	return nil // it was logged
}
