package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/starling-host/starling/host/hostfile"
	"github.com/starling-host/starling/runtime/observe"
)

// flushPatience bounds how long a host that ends waits for a collector to take
// the last spans.
const flushPatience = 3 * time.Second

// openTraces returns what makes the spans of the host, or nil if nobody is to get
// them. They wait for the collector in a queue of 2048 spans, and who finds it full
// is dropped, so that nothing else ever waits. The variables that OpenTelemetry
// names for headers, certificates, times and sizes are those of its own exporter.
func (h *host) openTraces(ctx context.Context) (*observe.Tracer, error) {
	if !tracesWanted(h.file.Traces, os.Getenv) {
		return nil, nil
	}
	var where []otlptracehttp.Option
	if h.file.Traces.Endpoint != "" {
		where = append(where, otlptracehttp.WithEndpointURL(h.file.Traces.Endpoint))
	}
	exporter, err := otlptracehttp.New(ctx, where...)
	if err != nil {
		return nil, &failure{code: exitUsage, message: "traces: " + err.Error()}
	}
	who, err := resource.New(ctx, resource.WithAttributes(observe.Service("starling-host", programVersion(), h.file.Queue.Host)...),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, &failure{code: exitUsage, message: "traces: " + err.Error(), hint: "look at OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME"}
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(who), sdktrace.WithBatcher(&delivery{SpanExporter: exporter, logger: h.logger})}
	if part := h.file.Traces.Sample; part > 0 || os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdktrace.WithSampler(sampler(part)))
	}
	provider := sdktrace.NewTracerProvider(options...)
	h.onClose(func() { h.flush(provider) })
	return observe.NewTracer(provider), nil
}

// tracesWanted reports whether the file or the environment names a collector.
func tracesWanted(t hostfile.Traces, getenv func(string) string) bool {
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

// sampler chooses a part of all traces by their ids, so that every host chooses the
// same. It does not ask whether the sender of a request wants its trace to be kept:
// senders are tenants, and what they did is not theirs to hide from the operator.
func sampler(part float64) sdktrace.Sampler {
	if part == 0 {
		return sdktrace.AlwaysSample()
	}
	return sdktrace.TraceIDRatioBased(part)
}

// flush sends what is left.
func (h *host) flush(provider *sdktrace.TracerProvider) {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if err := provider.Shutdown(ctx); err != nil {
		h.logger.Warn("the last spans were not delivered", "error", err.Error())
	}
}

// delivery tells the log when spans begin to be lost, and when they arrive again,
// rather than for each batch. It is used by one goroutine.
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
		d.logger.Warn("spans are not delivered", "error", brief(err))
	case err == nil && d.failing:
		d.logger.Info("spans are delivered again")
	}
	d.failing = err != nil
	return nil // it has been told
}

// brief is the beginning of an error, which may repeat what a server said.
func brief(err error) string {
	const most = 300
	text := err.Error()
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s... (%s)", strings.ToValidUTF8(text[:most], ""), plural(len(text), "byte"))
}
