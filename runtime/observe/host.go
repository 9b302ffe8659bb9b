package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterBuild registers a metric with r that is always 1, and has the version of the
// program as a label.
func RegisterBuild(r prometheus.Registerer, version string) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: metricBuild, Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{labelVersion: version},
	})
	g.Set(1)
	r.MustRegister(g)
}

// RegisterCertificate registers with r until when clients accept the certificate that a
// server shows, as seconds since 1970. Expires is asked each time that somebody looks.
func RegisterCertificate(r prometheus.Registerer, expires func() time.Time) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: metricCertificate, Help: "When the certificate expires, in seconds since 1970.",
	}, func() float64 { return float64(expires().Unix()) }))
}

// Retention measures that old runs are removed. A nil *Retention measures nothing. It is
// safe for concurrent use.
type Retention struct{ last prometheus.Gauge }

// NewRetention registers the metric with r: when all that is due was removed last, as
// seconds since 1970, and 0 until then.
func NewRetention(r prometheus.Registerer) *Retention {
	return &Retention{gauge(r, metricRetention, "When all runs that were old enough had been removed last, in seconds since 1970; 0 for never.")}
}

// Succeeded says that nothing is left that is old enough to be removed.
func (m *Retention) Succeeded() {
	if m != nil {
		m.last.SetToCurrentTime()
	}
}
