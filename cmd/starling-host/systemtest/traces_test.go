package systemtest

import (
	"bytes"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes spans by OTLP over HTTP.
type collector struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	heard    [][]byte                 // bodies
	spans    map[string]*tracepb.Span // by name; the last of each
	resource map[string]string        // of the last request
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t, spans: map[string]*tracepb.Span{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || r.Method != "POST" || r.URL.Path != "/v1/traces" || r.Header.Get("X-Team") != "hosting" {
		c.t.Errorf("%s %s with %v: %v", r.Method, r.URL, r.Header, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, body)
	for _, of := range sent.ResourceSpans {
		c.resource = map[string]string{}
		for _, kv := range of.Resource.Attributes {
			c.resource[kv.Key] = kv.Value.String()
		}
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = span
			}
		}
	}
}

// names are those of all spans.
func (c *collector) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.spans))
}

// attributes are those of a span, as text.
func attributes(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, kv := range s.Attributes {
		all[kv.Key] = strings.Trim(kv.Value.String()[strings.IndexByte(kv.Value.String(), ':')+1:], `"`)
	}
	return all
}

// TestTracesReachACollector calls a tool within a trace, and has the collector be told
// of the request, the run and the call as parts of it, at the latest when the host
// ends; of the replay, that it was asked for; and of what was said, nothing.
func TestTracesReachACollector(t *testing.T) {
	t.Parallel()
	to := newCollector(t)
	c := newCluster(t, closedPolicy, "alice-and-sons")
	c.env = []string{"OTEL_EXPORTER_OTLP_HEADERS=x-team=hosting", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"}
	c.start("traces: {endpoint: "+to.URL+"}\nqueue: {host: host-7}\n", nil)
	c.upload("alice-and-sons")
	c.client.Transport = within{c.client.Transport, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
	status, text, err := c.call("alice-and-sons", "echo", map[string]string{"x": "what was said"})
	if err != nil || status != http.StatusOK {
		t.Fatalf("%d %s %v", status, text, err)
	}
	run := strings.Split(string(text), `"`)[3]
	for _, r := range []struct{ method, path string }{{"POST", "/runs/" + run + "/replay"}, {"GET", "/runs?q=what+was+said"}} {
		if status, text, err = c.ask("alice-and-sons", r.method, "/api/v1"+r.path, "", nil); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d %s %v", r.path, status, text, err)
		}
	}
	c.stop()

	if diff := cmp.Diff([]string{"GET /api/v1/runs", "POST /api/v1/modules", "POST /api/v1/runs/{id}/replay", "POST /api/v1/tools/{name}/call", "agent.run", "step.tool"}, to.names()); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	for _, key := range []string{"service.name", "service.version", "service.instance.id", "host.name", "process.pid", "deployment.environment.name"} {
		if to.resource[key] == "" {
			t.Errorf("the resource has no %s: %v", key, to.resource)
		}
	}
	parent := "b7ad6b7169203331"
	for _, name := range []string{"POST /api/v1/tools/{name}/call", "agent.run", "step.tool"} {
		s := to.spans[name]
		if got := hex.EncodeToString(s.ParentSpanId); got != parent || hex.EncodeToString(s.TraceId) != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is the child of %s in trace %x, want %s", name, got, s.TraceId, parent)
		}
		parent = hex.EncodeToString(s.SpanId)
	}
	if got := attributes(to.spans["agent.run"]); got["starling.run_id"] != run || got["starling.terminal"] != "RunCompleted" {
		t.Errorf("the run is %v", got)
	}
	if got := attributes(to.spans["step.tool"]); got["gen_ai.tool.name"] != "echo" || len(got["starling.fuel"]) < 3 {
		t.Errorf("the call is %v", got)
	}
	for _, secret := range []string{"alice", "what was said", "what+was+said", c.keys["alice-and-sons"]} {
		if bytes.Contains(bytes.Join(to.heard, nil), []byte(secret)) {
			t.Errorf("the collector was told %q", secret)
		}
	}
}

// within sends requests from within a trace.
type within struct {
	http.RoundTripper
	traceparent string
}

func (w within) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Traceparent", w.traceparent)
	r.Header.Set("Tracestate", "who=alice")
	return w.RoundTripper.RoundTrip(r)
}

// TestTracesToABrokenCollectorDelayNoCall has a host send its spans to a collector that
// is not there, one that never answers, and one that refuses, with a queue for few
// of them. Its tenants are served, and it ends when it is told to.
func TestTracesToABrokenCollectorDelayNoCall(t *testing.T) {
	t.Parallel()
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("no ", 1000), http.StatusForbidden)
	}))
	t.Cleanup(refuses.Close)
	for name, url := range map[string]string{"dead": dead.URL, "hanging": newTar(t).URL, "refusing": refuses.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, closedPolicy, "alice")
			c.env = []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=" + url,
				"OTEL_BSP_MAX_QUEUE_SIZE=4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2", // each call makes three spans
				"OTEL_EXPORTER_OTLP_TIMEOUT=600000", "OTEL_BSP_EXPORT_TIMEOUT=600000", // so that a host that waits for it waits in vain
			}
			c.start("", nil)
			c.upload("alice")
			for i := range 20 {
				if status, text, err := c.call("alice", "echo", map[string]int{"x": i}); err != nil || status != http.StatusOK {
					t.Fatalf("%d %s %v\n%s", status, text, err, tail(c.stderr.String(), 2000))
				}
			}
			c.stop()
			said := c.stderr.String()
			if n := strings.Count(said, "delivered"); n != 1 {
				t.Errorf("it was said %d times that spans are lost:\n%s", n, tail(said, 3000))
			}
		})
	}
}
