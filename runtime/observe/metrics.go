//go:build !js

package observe

import (
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/step"
)

// The buckets, in seconds. Each set ranges from a good case to one that a
// user notices: a sandboxed tool takes microseconds, and a tool that calls a
// server seconds; an append is a queue that takes microseconds until the disk
// is behind.
var (
	runBuckets      = []float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	providerBuckets = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}
	toolBuckets     = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300}
	appendBuckets   = []float64{0.000005, 0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1}
)

var _ step.MetricsSink = (*Metrics)(nil)

// Metrics are the measurements of all runs of a process. A nil *Metrics
// measures nothing. It is safe for concurrent use.
type Metrics struct {
	runsStarted  prometheus.Counter
	runsInFlight prometheus.Gauge
	runTerminal  *prometheus.CounterVec
	runDuration  *prometheus.HistogramVec

	providerCalls    *prometheus.CounterVec
	providerDuration *prometheus.HistogramVec
	providerTokens   *prometheus.CounterVec

	toolCalls    *prometheus.CounterVec
	toolDuration *prometheus.HistogramVec

	appends        *prometheus.CounterVec
	appendDuration *prometheus.HistogramVec

	budgetExceeded, egress *prometheus.CounterVec

	models, tools share
}

// NewMetrics registers the metrics with r. It panics if r has them already: one
// process measures once. With a nil r it returns nil, which measures nothing.
func NewMetrics(r prometheus.Registerer) *Metrics {
	if r == nil {
		return nil
	}
	m := &Metrics{
		runsStarted:  promauto.With(r).NewCounter(prometheus.CounterOpts{Name: "starling_runs_started_total", Help: "Runs started, including those that ended at once."}),
		runsInFlight: gauge(r, "starling_runs_in_flight", "Runs that are going on."),
		runTerminal: counters(r, "starling_run_terminal_total",
			"Runs that ended, by status (ok, error, cancelled or budget) and type of error.", "status", "error_type"),
		runDuration: histogram(r, "starling_run_duration_seconds", "Duration of runs.", runBuckets, "status"),

		providerCalls:    counters(r, "starling_provider_calls_total", "Calls of models, by status (ok, error or cancelled).", "model", "status"),
		providerDuration: histogram(r, "starling_provider_call_duration_seconds", "Duration of calls of models, to the end of the response.", providerBuckets, "model"),
		providerTokens:   counters(r, "starling_provider_tokens_total", "Tokens that providers counted, of type prompt or completion.", "model", "type"),

		toolCalls:    counters(r, "starling_tool_calls_total", "Attempts of tools, by status (ok or error) and type of error.", "tool", "status", "error_type"),
		toolDuration: histogram(r, "starling_tool_call_duration_seconds", "Duration of attempts of tools.", toolBuckets, "tool"),

		appends:        counters(r, "starling_eventlog_appends_total", "Appends to the event log, by kind of event and status (ok or error).", "kind", "status"),
		appendDuration: histogram(r, "starling_eventlog_append_duration_seconds", "Time until the event log took an event.", appendBuckets, "kind"),

		budgetExceeded: counters(r, "starling_budget_exceeded_total", "Budgets that runs exceeded, by axis.", "axis"),
		egress:         counters(r, "starling_egress_requests_total", "HTTP requests of tools, by outcome; secret for a refused request with the placeholder of a secret.", "outcome"),

		models: newNames(), tools: newNames(),
	}
	for _, outcome := range outcomes { // Prometheus does not count the first value of a series as an increase
		m.egress.WithLabelValues(outcome)
	}
	return m
}

// Share returns metrics that count into m, through which one tenant can give at most most
// tools a label of their own. A label that exists already does not count.
func (m *Metrics) Share(owner string, most int) *Metrics {
	if m == nil {
		return nil
	}
	part := *m
	part.tools = share{m.tools.names, owner, most}
	return &part
}

// MetricsHandler serves what g has gathered, in the text format that Prometheus
// reads, to at most four at a time. With a nil g it answers 404.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	if g == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// KnowTools gives each of the tools a label of its own before it is called, up
// to [MaxNames] in all.
func (m *Metrics) KnowTools(tools ...string) {
	if m != nil {
		m.tools.know(tools)
	}
}

// KnowModels gives each of the models a label of its own before it is called,
// up to [MaxNames] in all.
func (m *Metrics) KnowModels(models ...string) {
	if m != nil {
		m.models.know(models)
	}
}

// RunStarted counts a run that begins. RunEnded must follow.
func (m *Metrics) RunStarted() {
	if m == nil {
		return
	}
	m.runsStarted.Inc()
	m.runsInFlight.Inc()
}

// RunResumed counts a run that continues in this process. RunEnded must follow.
func (m *Metrics) RunResumed() {
	if m != nil {
		m.runsInFlight.Inc()
	}
}

// RunEnded counts the end of a run: the kind of its terminal event, and if that
// is RunFailed the type of error. A run may stop without one, because the log failed
// or the process shuts down. Then it counts only that the run is not active any more.
func (m *Metrics) RunEnded(terminal event.Kind, errorType string, d time.Duration) {
	if m == nil {
		return
	}
	m.runsInFlight.Dec()
	if !terminal.Terminal() {
		return
	}
	status, errorType := runStatus(terminal, errorType)
	m.runTerminal.WithLabelValues(status, errorType).Inc()
	m.runDuration.WithLabelValues(status).Observe(d.Seconds())
}

// RunAbandoned counts a run that ends here without being made: as ended, and as started
// too if no process had begun it. It has no duration. See [Metrics.RunEnded] for the
// rest.
func (m *Metrics) RunAbandoned(begun bool, terminal event.Kind, errorType string) {
	if m == nil {
		return
	}
	if !begun {
		m.runsStarted.Inc()
	}
	status, errorType := runStatus(terminal, errorType)
	m.runTerminal.WithLabelValues(status, errorType).Inc()
}

func runStatus(terminal event.Kind, errorType string) (status, label string) {
	switch {
	case terminal == event.KindRunCompleted:
		return statusOK, none
	case terminal == event.KindRunCancelled:
		return statusCancelled, none
	case errorType == event.ErrorBudget:
		return statusBudget, event.ErrorBudget
	}
	return statusError, errorLabel(errorType)
}

// ObserveProviderCall implements [step.MetricsSink]. Status is ok, error or
// cancelled.
func (m *Metrics) ObserveProviderCall(model, status string, d time.Duration, promptTokens, completionTokens int64) {
	if m == nil {
		return
	}
	model = m.models.label(model, status == statusOK)
	m.providerCalls.WithLabelValues(model, oneOf(status, statuses)).Inc()
	m.providerDuration.WithLabelValues(model).Observe(d.Seconds())
	m.addTokens(model, "prompt", promptTokens)
	m.addTokens(model, "completion", completionTokens)
}

func (m *Metrics) addTokens(model, kind string, n int64) {
	if n > 0 {
		m.providerTokens.WithLabelValues(model, kind).Add(float64(n))
	}
}

// ObserveToolCall implements [step.MetricsSink].
func (m *Metrics) ObserveToolCall(toolName, status, errorType string, d time.Duration) {
	if m == nil {
		return
	}
	tool := m.tools.label(toolName, status == statusOK)
	m.toolCalls.WithLabelValues(tool, oneOf(status, statuses), errorLabel(errorType)).Inc()
	m.toolDuration.WithLabelValues(tool).Observe(d.Seconds())
}

// ObserveEventlogAppend implements [step.MetricsSink].
func (m *Metrics) ObserveEventlogAppend(kind, status string, d time.Duration) {
	if m == nil {
		return
	}
	if !event.KindNamed(kind).Valid() {
		kind = other
	}
	m.appends.WithLabelValues(kind, oneOf(status, statuses)).Inc()
	m.appendDuration.WithLabelValues(kind).Observe(d.Seconds())
}

// ObserveBudgetExceeded implements [step.MetricsSink].
func (m *Metrics) ObserveBudgetExceeded(axis string) {
	if m != nil {
		m.budgetExceeded.WithLabelValues(oneOf(axis, axes)).Inc()
	}
}

// ObserveEgress counts a request of a tool, see [egress.WithCount].
func (m *Metrics) ObserveEgress(outcome string) {
	if m != nil {
		m.egress.WithLabelValues(oneOf(outcome, outcomes)).Inc()
	}
}

func gauge(r prometheus.Registerer, name, help string) prometheus.Gauge {
	return promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func counters(r prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(r prometheus.Registerer, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// MaxNames bounds the tools, and the models, that have a label of their own.
const MaxNames = 100

// maxNameBytes bounds one name, in a label and in an attribute.
const maxNameBytes = 128

// names are the values of one label that are the names of something.
type names struct {
	mu    sync.RWMutex
	known map[string]string // the owner of each; guarded by mu
}

// share is the part of names that one owner may take.
type share struct {
	*names
	owner string
	most  int
}

func newNames() share { return share{&names{known: map[string]string{}}, "", MaxNames} }

// know adds names as long as there is room.
func (s share) know(all []string) {
	for _, name := range all {
		s.label(name, true)
	}
}

// label returns the name if it has a label of its own, or if it is real and
// there is room for it, and "other" if not.
func (s share) label(name string, real bool) string {
	s.mu.RLock()
	_, known := s.known[name]
	s.mu.RUnlock()
	if known || real && s.add(name) {
		return name
	}
	return other
}

func (s share) add(name string) bool {
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.known[name]; known {
		return true
	}
	if len(s.known) >= MaxNames {
		return false
	}
	taken := 0 // by the owner
	for _, owner := range s.known {
		if owner == s.owner {
			taken++
		}
	}
	if taken >= s.most {
		return false
	}
	s.known[name] = s.owner
	return true
}

// oneOf returns value if it is in the set, and "other" if not.
func oneOf(value string, set []string) string {
	if slices.Contains(set, value) {
		return value
	}
	return other
}

var (
	statuses = []string{statusOK, statusError, statusCancelled}
	outcomes = []string{statusOK, statusCancelled, "secret", "denied", "malformed", "too_large", "network", "timeout"}
	axes     = []string{
		budget.InputTokens, budget.OutputTokens, budget.USD, budget.WallClock, budget.Fuel, budget.Effects, budget.EgressBytes,
	}
)

func errorLabel(errorType string) string {
	if errorType == "" {
		return none
	}
	return oneOf(errorType, errorTypes)
}
