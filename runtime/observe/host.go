package observe

import (
	"context"
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

// SpaceState is what a host stores, and the room that there is for it, in bytes. What is
// less than zero is not known.
type SpaceState struct {
	Disks    map[string]DiskState // by what is on them, such as database or cache
	Database int64                // with its WAL
	Modules  int64                // how many are stored
	Bytes    int64                // of these modules
	Compiled int64                // code in the cache
}

// DiskState is the room on a disk.
type DiskState struct{ Free, Total int64 }

// RegisterSpace registers metrics of what a host stores with r. State is asked each time
// that somebody looks.
func RegisterSpace(r prometheus.Registerer, state func(context.Context) SpaceState) {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	r.MustRegister(&spaceMetrics{
		state:    state,
		free:     describe(metricDiskFree, "Room on the disk of a folder of the host.", labelFolder),
		size:     describe(metricDiskSize, "Size of the disk of a folder of the host.", labelFolder),
		database: describe(metricDatabase, "Size of the database, with the WAL of a file."),
		modules:  describe(metricModules, "Modules that are stored for tenants, for their runs and for agents."),
		bytes:    describe(metricModuleBytes, "Size of the modules that are stored."),
		compiled: describe(metricCompiled, "Size of the compiled code in the cache folder."),
	})
}

type spaceMetrics struct {
	state                                          func(context.Context) SpaceState
	free, size, database, modules, bytes, compiled *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (s *spaceMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.free, s.size, s.database, s.modules, s.bytes, s.compiled} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *spaceMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queueTime)
	defer cancel()
	now := s.state(ctx)
	give := func(d *prometheus.Desc, value int64, labels ...string) {
		if value >= 0 {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
		}
	}
	for folder, d := range now.Disks {
		give(s.free, d.Free, folder)
		give(s.size, d.Total, folder)
	}
	give(s.database, now.Database)
	give(s.modules, now.Modules)
	give(s.bytes, now.Bytes)
	give(s.compiled, now.Compiled)
}
