package observe

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// httpBuckets span an answer from memory to one that waited for its run.
var httpBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60}

// HTTPMetrics are the measurements of a server. A nil *HTTPMetrics measures
// nothing. It is safe for concurrent use.
type HTTPMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewHTTPMetrics registers the metrics with r. With a nil r it returns nil.
func NewHTTPMetrics(r prometheus.Registerer) *HTTPMetrics {
	if r == nil {
		return nil
	}
	return &HTTPMetrics{
		requests: counters(r, metricHTTPRequests, "Requests that were answered, by route and status; 499 if the client had gone.", labelRoute, labelCode),
		duration: histogram(r, metricHTTPTime, "Time until requests were answered; of a stream, until it ended.", httpBuckets, labelRoute),
	}
}

// ObserveRequest counts a request. Route is the pattern that it matched, of which
// a server has a fixed number, and never its path.
func (m *HTTPMetrics) ObserveRequest(route string, status int, d time.Duration) {
	if m == nil {
		return
	}
	code := other
	if status >= 100 && status < 600 {
		code = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(route, code).Inc()
	m.duration.WithLabelValues(route).Observe(d.Seconds())
}

// QueueState is how much work there is, and how many hosts there are.
type QueueState struct {
	Ready, Sleeping, Running int
	Oldest                   time.Time      // when the oldest of all of it was enqueued; zero when there is none
	Hosts                    map[string]int // by state: working, draining, drained, silent or gone
}

// queueMetrics asks for the state of a queue when somebody looks.
type queueMetrics struct {
	state             func(context.Context) (QueueState, error)
	jobs, wait, hosts *prometheus.Desc
}

// queueTime bounds how long a look at the metrics may take because of the queue.
const queueTime = 2 * time.Second

// RegisterQueue registers the metrics of a queue with r. State is asked each time
// that somebody looks; an error leaves them out.
func RegisterQueue(r prometheus.Registerer, state func(context.Context) (QueueState, error)) {
	r.MustRegister(&queueMetrics{
		state: state,
		jobs:  prometheus.NewDesc(metricQueueJobs, "Runs that are in the queue, by state (ready, sleeping or running).", []string{labelState}, nil),
		wait:  prometheus.NewDesc(metricQueueOldest, "Time since the oldest run in the queue was enqueued, 0 for an empty queue.", nil, nil),
		hosts: prometheus.NewDesc(metricHosts, "Hosts that share the database, by state (working, draining, drained, silent or gone).", []string{labelState}, nil),
	})
}

// Describe implements [prometheus.Collector].
func (q *queueMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- q.jobs
	to <- q.wait
	to <- q.hosts
}

// Collect implements [prometheus.Collector].
func (q *queueMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queueTime)
	defer cancel()
	s, err := q.state(ctx)
	if err != nil {
		return
	}
	for state, n := range map[string]int{"ready": s.Ready, "sleeping": s.Sleeping, "running": s.Running} {
		to <- prometheus.MustNewConstMetric(q.jobs, prometheus.GaugeValue, float64(n), state)
	}
	age := 0.0
	if !s.Oldest.IsZero() {
		age = max(time.Since(s.Oldest).Seconds(), 0)
	}
	to <- prometheus.MustNewConstMetric(q.wait, prometheus.GaugeValue, age)
	for _, state := range []string{"working", "draining", "drained", "silent", "gone"} {
		to <- prometheus.MustNewConstMetric(q.hosts, prometheus.GaugeValue, float64(s.Hosts[state]), state)
	}
}

// NewRegistry returns a registry with the metrics of the Go runtime and of the
// process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
