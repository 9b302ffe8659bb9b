package eventlog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/memlog"
	"github.com/starling-host/starling/eventlog/logtest"
)

// transactions keeps what each transaction of a pruning has removed.
type transactions struct {
	eventlog.Store
	made []eventlog.PruneReport
}

func (p *transactions) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	report, err := p.Store.PruneRuns(ctx, o)
	if !o.DryRun {
		p.made = append(p.made, report)
	}
	return report, err
}

// overtaken makes another process remove the runs, after each look at them.
type overtaken struct {
	transactions
	t *testing.T
}

func (p *overtaken) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	report, err := p.transactions.PruneRuns(ctx, o)
	if o.DryRun {
		if _, err := p.Store.PruneRuns(ctx, eventlog.PruneOptions{IncludeOpen: true}); err != nil {
			p.t.Error(err)
		}
	}
	return report, err
}

// TestPruneBesideAnother: runs that one transaction removes together go together, whichever
// pruning is faster.
func TestPruneBesideAnother(t *testing.T) {
	log := memlog.New()
	defer log.Close()
	for _, e := range logtest.Finished("run", 1) {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	p := &overtaken{transactions{Store: log}, t}
	report, err := eventlog.PruneInSteps(t.Context(), p, eventlog.PruneOptions{})
	if err != nil || report.Runs != 0 || len(p.made) != 2 {
		t.Errorf("%+v, %v, in %d transactions", report, err, len(p.made))
	}
}

// TestPruneInSteps removes short and long runs: never many runs or events in one
// transaction, and in all as many as asked for.
func TestPruneInSteps(t *testing.T) {
	const runs, most, mostEvents = 250, 100, 5000
	for _, c := range []struct{ limit, want int }{{0, runs}, {runs, runs}, {1, 1}, {130, 130}, {runs + 50, runs}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			log := memlog.New()
			defer log.Close()
			for i := range runs {
				effects := 1
				if i%50 == 3 {
					effects = 6000
				}
				for _, e := range logtest.Finished(fmt.Sprintf("run-%03d", i), effects) {
					if err := log.Append(t.Context(), e.RunID, e); err != nil {
						t.Fatal(err)
					}
				}
			}
			p := &transactions{Store: log}
			dry, err := eventlog.PruneInSteps(t.Context(), p, eventlog.PruneOptions{Limit: c.limit, DryRun: true})
			if err != nil || !dry.DryRun || len(p.made) > 0 || dry.Runs != c.want {
				t.Errorf("a dry run: %+v, %v, and %v", dry, err, p.made)
			}
			report, err := eventlog.PruneInSteps(t.Context(), p, eventlog.PruneOptions{Limit: c.limit})
			if err != nil || report.Runs != dry.Runs || report.Events != dry.Events || report.DryRun {
				t.Errorf("%+v, %v, and it would have been %+v", report, err, dry)
			}
			for _, made := range p.made {
				if made.Runs > most || made.Events > mostEvents && made.Runs > 1 {
					t.Errorf("one transaction removed %d runs with %d events", made.Runs, made.Events)
				}
			}
			if left, err := log.ListRuns(t.Context()); err != nil || len(left) != runs-c.want {
				t.Errorf("%d runs are left, %v", len(left), err)
			}
		})
	}
}
