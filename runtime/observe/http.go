//go:build !js

package observe

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// httpBuckets range from an answer from memory to an answer that waited for its run.
var httpBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60}

// HTTPMetrics are the measurements of a server. A nil *HTTPMetrics measures
// nothing. It is safe for concurrent use.
type HTTPMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	ready    *prometheus.GaugeVec
}

// NewHTTPMetrics registers the metrics with r. With a nil r it returns nil.
func NewHTTPMetrics(r prometheus.Registerer) *HTTPMetrics {
	if r == nil {
		return nil
	}
	return &HTTPMetrics{
		requests: counters(r, "starling_http_requests_total", "Requests that were answered, by route and status; 499 if the client had gone.", "route", "code"),
		duration: histogram(r, "starling_http_request_duration_seconds", "Time until requests were answered; of a stream, until it ended.", httpBuckets, "route"),
		ready: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Name: "starling_ready", Help: "1 if a check of the host's readiness succeeds, otherwise 0.",
		}, []string{"check"}),
	}
}

// ObserveReady measures the result of one of the checks of the host's readiness.
func (m *HTTPMetrics) ObserveReady(check string, ok bool) {
	if m == nil {
		return
	}
	value := 0.0
	if ok {
		value = 1
	}
	m.ready.WithLabelValues(check).Set(value)
}

// ObserveRequest counts a request. Route is the pattern that it matched, never
// its path: a server has a fixed number of patterns.
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

// QueueState counts jobs and hosts.
type QueueState struct {
	Waiting, Sleeping, Running int
	Tenants                    int            // with ready jobs
	Oldest                     time.Time      // when the oldest waiting job was enqueued; zero without waiting jobs
	Hosts                      map[string]int // by state: working, draining, drained, silent or gone
}

// scrapeTime bounds how long a scrape waits for the values that are read at that moment.
const scrapeTime = 2 * time.Second

// scraped are metrics that are asked for at each scrape.
type scraped struct {
	all []*prometheus.Desc
	ask func(ctx context.Context, give func(d *prometheus.Desc, value float64, labels ...string))
}

// describe adds a metric.
func (s *scraped) describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	s.all = append(s.all, d)
	return d
}

// Describe implements [prometheus.Collector].
func (s *scraped) Describe(to chan<- *prometheus.Desc) {
	for _, d := range s.all {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *scraped) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	s.ask(ctx, func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	})
}

// RegisterQueue registers the metrics of a queue with r. It calls state at each scrape; an
// error leaves the metrics out.
func RegisterQueue(r prometheus.Registerer, state func(context.Context) (QueueState, error)) {
	m := &scraped{}
	jobs := m.describe("starling_queue_jobs", "Runs that are in the queue, by state (waiting, sleeping or running).", "state")
	tenants := m.describe("starling_queue_waiting_tenants", "Tenants with runs that wait for a worker.")
	oldest := m.describe("starling_queue_oldest_seconds", "Time since the oldest run in the queue was enqueued, 0 for an empty queue.")
	hosts := m.describe("starling_hosts", "Hosts that share the database, by state (working, draining, drained, silent or gone).", "state")
	m.ask = func(ctx context.Context, give func(*prometheus.Desc, float64, ...string)) {
		s, err := state(ctx)
		if err != nil {
			return
		}
		for state, n := range map[string]int{"waiting": s.Waiting, "sleeping": s.Sleeping, "running": s.Running} {
			give(jobs, float64(n), state)
		}
		age := 0.0
		if !s.Oldest.IsZero() {
			age = max(time.Since(s.Oldest).Seconds(), 0)
		}
		give(oldest, age)
		give(tenants, float64(s.Tenants))
		for _, state := range []string{"working", "draining", "drained", "silent", "gone"} {
			give(hosts, float64(s.Hosts[state]), state)
		}
	}
	r.MustRegister(m)
}

// CPUState is how tenants share the processors.
type CPUState struct {
	Tenants int           // that wait for a CPU slot now
	Waited  time.Duration // of all calls that got one
	Demoted uint64        // calls that computed for long
}

// RegisterCPU registers the metrics of CPU slots with r. It calls state at each scrape.
func RegisterCPU(r prometheus.Registerer, state func() CPUState) {
	with := promauto.With(r)
	with.NewGaugeFunc(prometheus.GaugeOpts{Name: "starling_cpu_waiting_tenants", Help: "Tenants whose calls wait for a CPU slot."},
		func() float64 { return float64(state().Tenants) })
	with.NewCounterFunc(prometheus.CounterOpts{Name: "starling_cpu_wait_seconds_total", Help: "Time that calls waited for CPU slots."},
		func() float64 { return state().Waited.Seconds() })
	with.NewCounterFunc(prometheus.CounterOpts{Name: "starling_calls_demoted_total", Help: "Calls that computed for long and got the lowest priority."},
		func() float64 { return float64(state().Demoted) })
}

// NewRegistry returns a registry with the metrics of the Go runtime and of the
// process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// RegisterBuild registers a metric with r that is always 1, and has the version of the
// program as a label.
func RegisterBuild(r prometheus.Registerer, version string) {
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "starling_build_info", Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{"version": version},
	}).Set(1)
}

// RegisterCertificate registers the time at which a server's certificate expires with r,
// in seconds since 1970. It calls expires at each scrape.
func RegisterCertificate(r prometheus.Registerer, expires func() time.Time) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "starling_certificate_expiry_timestamp_seconds", Help: "When the certificate expires, in seconds since 1970.",
	}, func() float64 { return float64(expires().Unix()) })
}

// Seal measures that ended runs are signed. A nil *Seal measures nothing. It is safe for
// concurrent use.
type Seal struct{ last, runs prometheus.Gauge }

// NewSeal registers the metrics with r: when all ended runs were in a checkpoint last, as
// seconds since 1970, and how many runs the newest checkpoint has. Both are 0 until then.
func NewSeal(r prometheus.Registerer) *Seal {
	return &Seal{
		last: gauge(r, "starling_seal_last_success_timestamp_seconds", "When all ended runs were in a signed checkpoint last, in seconds since 1970; 0 for never."),
		runs: gauge(r, "starling_sealed_runs", "Runs in the newest checkpoint; 0 until the host has signed one."),
	}
}

// Sealed records that a new checkpoint has all ended runs, the given number, or that none was
// necessary if runs is 0.
func (s *Seal) Sealed(runs uint64) {
	if s == nil {
		return
	}
	s.last.SetToCurrentTime()
	if runs > 0 {
		s.runs.Set(float64(runs))
	}
}

// Retention measures that old runs are removed. A nil *Retention measures nothing. It is
// safe for concurrent use.
type Retention struct{ last prometheus.Gauge }

// NewRetention registers the metric with r: when all that is due was removed last, as
// seconds since 1970, and 0 until then.
func NewRetention(r prometheus.Registerer) *Retention {
	return &Retention{gauge(r, "starling_retention_last_success_timestamp_seconds", "When all runs that were old enough had been removed last, in seconds since 1970; 0 for never.")}
}

// Succeeded records that nothing old enough to be removed is left.
func (m *Retention) Succeeded() {
	if m != nil {
		m.last.SetToCurrentTime()
	}
}

// SpaceState is a host's stored bytes, and the room for them. A negative value is
// unknown.
type SpaceState struct {
	Disks    map[string]DiskState // by their use, such as database or cache
	Database int64                // with its WAL
	Modules  int64                // how many are stored
	Bytes    int64                // of these modules
	Compiled int64                // code in the cache
}

// DiskState is the room on a disk.
type DiskState struct{ Free, Total int64 }

// RegisterSpace registers metrics of the space that a host uses with r. It calls state at
// each scrape.
func RegisterSpace(r prometheus.Registerer, state func(context.Context) SpaceState) {
	m := &scraped{}
	free := m.describe("starling_disk_free_bytes", "Room on the disk of a folder of the host.", "folder")
	size := m.describe("starling_disk_size_bytes", "Size of the disk of a folder of the host.", "folder")
	database := m.describe("starling_database_bytes", "Size of the database, with the WAL of a file.")
	modules := m.describe("starling_modules", "Modules that are stored for tenants, for their runs and for agents.")
	bytes := m.describe("starling_module_bytes", "Size of the modules that are stored, before compression.")
	compiled := m.describe("starling_compiled_code_bytes", "Size of the compiled code in the cache folder.")
	m.ask = func(ctx context.Context, give func(*prometheus.Desc, float64, ...string)) {
		known := func(d *prometheus.Desc, value int64, labels ...string) {
			if value >= 0 {
				give(d, float64(value), labels...)
			}
		}
		now := state(ctx)
		for folder, d := range now.Disks {
			known(free, d.Free, folder)
			known(size, d.Total, folder)
		}
		known(database, now.Database)
		known(modules, now.Modules)
		known(bytes, now.Bytes)
		known(compiled, now.Compiled)
	}
	r.MustRegister(m)
}
