package queuetest

import (
	"context"
	"testing"

	"github.com/starling-host/starling/serve/queue"
)

// deaths has hosts die one after the other that all have the same two jobs: of the
// run of one they die, the other is beside it and has not begun.
func deaths(t *testing.T, db Database) {
	var culprit queue.Lease
	life := 0
	for ; !culprit.Exhausted; life++ {
		if life > queue.MaxDeaths+1 {
			t.Fatalf("%d hosts have died of a run that is not given up: %+v", life, culprit)
		}
		h := db(t, queue.Config{Host: "h", Clock: NewClock(), Workers: 2}) // so that the dead take nothing else
		if life == 0 {
			enqueue(t, h, queue.Job{RunID: "beside"}, queue.Job{RunID: "culprit"})
		}
		culprit = live(t, h, life)
	}
	if culprit.Deaths != queue.MaxDeaths || culprit.Stranded != 1 || life != queue.MaxDeaths+2 {
		t.Errorf("given up in life %d: %+v", life, culprit)
	}
}

// live has a host work both jobs for as long as the test lasts: the host that begins to
// work under its name takes it for dead. It returns the lease of the culprit.
func live(t *testing.T, h Host, life int) (culprit queue.Lease) {
	told := make(chan queue.Lease, 2)
	work(t, h, func(ctx context.Context, l queue.Lease) error {
		if l.RunID == "culprit" && !l.Exhausted {
			if err := l.Begin(ctx); err != nil {
				t.Error(err)
			}
		}
		told <- l
		<-t.Context().Done()
		return nil
	})
	for range 2 {
		l := receive(t, told)
		if l.RunID == "culprit" {
			culprit = l
		} else if l.Deaths != 0 || l.Stranded != life || l.Exhausted {
			t.Errorf("in life %d, the job beside: %+v", life, l)
		}
		if l.Suspect() != (life > 0) || l.Attempt != 1 {
			t.Errorf("in life %d: %+v", life, l)
		}
	}
	return culprit
}

// beginLate has a host begin a run that was given to another one meanwhile.
func beginLate(t *testing.T, db Database) {
	cfg := queue.Config{Host: "h", Clock: NewClock(), Workers: 1}
	a, b, c := db(t, cfg), db(t, cfg), db(t, cfg)
	enqueue(t, a, queue.Job{RunID: "t/1"})
	wake, late := make(chan bool), make(chan error, 1)
	told := make(chan queue.Lease, 1)
	hold := func(ctx context.Context, l queue.Lease) error {
		told <- l
		await(t, wake)
		late <- l.Begin(context.WithoutCancel(ctx))
		return nil
	}
	idle := func(_ context.Context, l queue.Lease) error {
		told <- l
		<-t.Context().Done()
		return nil
	}
	work(t, a, idle)
	receive(t, told)
	work(t, b, hold) // a suspect by now
	receive(t, told)
	work(t, c, idle)
	receive(t, told)
	close(wake)
	if err := receive(t, late); err != queue.ErrLost {
		t.Errorf("the run begins on a host that has lost it: %v", err)
	}
}
