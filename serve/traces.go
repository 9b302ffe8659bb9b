package serve

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/observe"
)

// flushTime bounds the wait at shutdown for a collector to accept the last spans.
const flushTime = 3 * time.Second

// openTraces returns the tracer provider of the host, or nil without a collector. Spans
// wait for the collector in a queue of 2048, and are dropped if it is full, so that nothing
// else ever waits.
func (h *Host) openTraces(ctx context.Context) (*observe.Tracer, error) {
	if h.found.traces == nil {
		return nil, nil
	}
	exporter := otlptrace.NewUnstarted(h.found.traces)
	who, err := resource.New(ctx, resource.WithAttributes(observe.Service("starling-host", h.o.Version, h.file.Queue.Host)...),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, &SetupError{Err: fmt.Errorf("serve: traces: %w", err), Hint: "check OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME"}
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(who), sdktrace.WithBatcher(&delivery{SpanExporter: exporter, logger: h.logger})}
	// Traces are sampled by their ids, so that all hosts choose the same. The sender's
	// choice does not count: senders are tenants, who must not hide from the operator.
	if part := h.file.Traces.Sample; part > 0 {
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

// delivery logs once when spans begin to be lost, and once when they arrive again. It is
// used by one goroutine.
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
		const most = 300 // the error may quote a server
		text := err.Error()
		if len(text) > most {
			text = fmt.Sprintf("%s... (%s)", strings.ToValidUTF8(text[:most], ""), display.Plural(len(text), "byte"))
		}
		d.logger.Warn("spans are not delivered", "error", text)
	case err == nil && d.failing:
		d.logger.Info("spans are delivered again")
	}
	d.failing = err != nil
	return nil // already logged; the SDK would only write it to standard error, since it never exports a batch again
}

// otlpClient is an otlptrace.Client that sends spans to a collector by OTLP over HTTP, in
// the binary encoding. OpenTelemetry's own client would bring gRPC with it.
// https://opentelemetry.io/docs/specs/otlp/ describes the protocol, and
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/ the variables.
type otlpClient struct {
	url     string
	header  http.Header
	gzip    bool
	client  *http.Client
	fetcher *egress.Fetcher
}

// newOTLPClient returns the client for a URL, by default the URL of the environment.
func newOTLPClient(endpoint string, getenv func(string) string) (*otlpClient, error) {
	variable := func(name string) string {
		return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	c := &otlpClient{header: http.Header{"Content-Type": {"application/x-protobuf"}}}
	c.url = cmp.Or(endpoint, getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), strings.TrimSuffix(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/")+"/v1/traces")
	if u, err := url.Parse(c.url); err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a collector", c.url)
	}
	for pair := range strings.SplitSeq(variable("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if value, err := url.PathUnescape(strings.TrimSpace(value)); ok && err == nil {
			c.header.Add(strings.TrimSpace(name), value)
		}
	}
	if c.gzip = variable("COMPRESSION") == "gzip"; c.gzip {
		c.header.Set("Content-Encoding", "gzip")
	}
	timeout, err := strconv.Atoi(cmp.Or(variable("TIMEOUT"), "10000"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %w", err)
	}
	trusted, err := otlpTLS(variable)
	if err != nil {
		return nil, err
	}
	c.fetcher = egress.NewFetcher(trusted, 0)
	c.client = &http.Client{Timeout: time.Duration(timeout) * time.Millisecond, Transport: c.fetcher.Origin(c.url)}
	return c, nil
}

// otlpTLS loads the certificates that the environment names.
func otlpTLS(variable func(string) string) (*tls.Config, error) {
	c := &tls.Config{}
	if path := variable("CERTIFICATE"); path != "" {
		pem, err := keyfile.ReadFile(path, keyfile.MaxBytes)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate", path)
		}
	}
	if cert, key := variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY"); cert != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Start and Stop implement otlptrace.Client.
func (c *otlpClient) Start(context.Context) error { return nil }
func (c *otlpClient) Stop(context.Context) error  { c.fetcher.CloseIdleConnections(); return nil }

// UploadTraces sends spans. If the collector cannot be reached or is temporarily unavailable, it
// retries up to three times, after one, two and four seconds, or as the collector asks.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // an ExportTraceServiceRequest has the same bytes
	if err != nil {
		return err
	}
	if c.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(body)
		w.Close()
		body = b.Bytes()
	}
	for wait := time.Second; ; wait *= 2 {
		after, err := c.post(ctx, body)
		if err == nil || after < 0 || wait > 4*time.Second {
			return err
		}
		if await.Pause(ctx, max(wait, after)); ctx.Err() != nil {
			return err
		}
	}
}

// post makes one request. If it may be repeated, after is the wait that the collector asks
// for; otherwise it is negative. A request without an answer may be repeated: a collector that
// receives a span twice keeps one, by its id.
func (c *otlpClient) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = c.header.Clone()
	response, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	switch response.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		after = min(time.Duration(seconds)*time.Second, time.Minute)
	default:
		after = -1
	}
	return after, fmt.Errorf("the collector answers %s: %s", response.Status, bytes.ToValidUTF8(text, nil))
}
