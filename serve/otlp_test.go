package serve

import (
	"compress/gzip"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestTheCollectorIsAsTheEnvironmentSays sends a span to a server with a certificate of its
// own, at the address and with the header and the compression that variables name.
func TestTheCollectorIsAsTheEnvironmentSays(t *testing.T) {
	var got tracepb.TracesData
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/otel/v1/traces" || r.Header.Get("X-Key") != "a b" || r.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(z)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL + "/otel/", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": ca,
	}
	c, err := newOTLPClient("", func(name string) string { return variables[name] })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop(t.Context())
	spans := []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "a span"}}}}}}
	if err := c.UploadTraces(t.Context(), spans); err != nil {
		t.Fatal(err)
	}
	if len(got.ResourceSpans) != 1 || got.ResourceSpans[0].ScopeSpans[0].Spans[0].Name != "a span" {
		t.Errorf("the collector has %v", &got)
	}
}

// TestOTLPCollectorAnswers tells apart what may be sent again.
func TestOTLPCollectorAnswers(t *testing.T) {
	for status, want := range map[int]time.Duration{200: 0, 400: -1, 401: -1, 429: 7 * time.Second, 503: 7 * time.Second, 500: -1} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}))
		c, err := newOTLPClient(server.URL, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		if after, err := c.post(t.Context(), nil); after != want || (err == nil) != (status == 200) {
			t.Errorf("%d: %v, %v", status, after, err)
		}
		server.Close()
	}
	for _, variables := range []map[string]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "not an address"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_EXPORTER_OTLP_CERTIFICATE": "none.pem"},
	} {
		if _, err := newOTLPClient("", func(name string) string { return variables[name] }); err == nil {
			t.Errorf("%v is accepted", variables)
		}
	}
}
