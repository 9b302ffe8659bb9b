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
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlpClient sends spans to a collector by OTLP over HTTP, in the binary encoding. It is an
// otlptrace.Client. The one of OpenTelemetry brings gRPC with it, which nothing here needs.
// https://opentelemetry.io/docs/specs/otlp/ describes the protocol, and
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/ the variables.
type otlpClient struct {
	url    string
	header http.Header
	gzip   bool
	client *http.Client
}

// newOTLPClient returns the client for a URL, or for the one that the environment has.
func newOTLPClient(endpoint string, getenv func(string) string) (*otlpClient, error) {
	variable := func(name string) string {
		return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	c := &otlpClient{url: endpoint, header: http.Header{"Content-Type": {"application/x-protobuf"}}}
	if c.url == "" {
		c.url = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	}
	if c.url == "" {
		c.url = strings.TrimSuffix(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/") + "/v1/traces"
	}
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
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = trusted
	c.client = &http.Client{Timeout: time.Duration(timeout) * time.Millisecond, Transport: transport}
	return c, nil
}

// otlpTLS has the certificates that the environment names.
func otlpTLS(variable func(string) string) (*tls.Config, error) {
	c := &tls.Config{}
	if path := variable("CERTIFICATE"); path != "" {
		pem, err := os.ReadFile(path)
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
func (c *otlpClient) Stop(context.Context) error  { c.client.CloseIdleConnections(); return nil }

// UploadTraces sends spans. What a collector cannot take at the moment is sent up to three
// times more, after one, two and four seconds, or when the collector says so.
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
		select {
		case <-time.After(max(wait, after)):
		case <-ctx.Done():
			return err
		}
	}
}

// post makes one request. If it may be repeated, after is not negative: how long the
// collector asks to wait.
func (c *otlpClient) post(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = c.header.Clone()
	response, err := c.client.Do(r)
	if err != nil {
		return -1, err
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
