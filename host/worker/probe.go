package worker

import (
	"context"
	"log/slog"

	"github.com/starling-host/starling/host/worker/internal/jail"
)

// Report says which layers lock a worker down, and why others do not.
type Report = jail.Report

// Probe starts a worker and returns what it says about itself. The error is why
// there can be no workers here.
func Probe() (Report, error) {
	p, err := start(context.Background(), settings{Memory: defaultMemory}, maxCompileAnswer, 0, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		return Report{}, err
	}
	defer p.end()
	return p.report, nil
}
