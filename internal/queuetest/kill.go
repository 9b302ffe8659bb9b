package queuetest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve/queue"
)

// Opener opens the database at an address for one more host.
type Opener func(ctx context.Context, address string, cfg queue.Config) (Host, error)

// childEnv has the address of the database in the process that [Kill] kills.
const childEnv = "STARLING_QUEUETEST_CHILD"

// Main runs the tests of a package whose tests call [Kill]: it is what TestMain does.
func Main(m *testing.M, open Opener) {
	if address := os.Getenv(childEnv); address != "" {
		if err := child(open, address); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1) // it is supposed to be killed
	}
	os.Exit(m.Run())
}

// killed is the configuration of the processes that are killed, each of which
// succeeds the one before.
func killed() queue.Config {
	cfg := quick()
	cfg.Host = "killed"
	return cfg
}

// child enqueues and works until it is killed. It says what was acknowledged, and
// which runs it was handed that had ended.
func child(open Opener, address string) error {
	h, err := open(context.Background(), address, killed())
	if err != nil {
		return err
	}
	for i := range 4 {
		go func() {
			for n := 0; ; n++ {
				run := fmt.Sprintf("p%d/%d.%d", os.Getpid(), i, n)
				if err := h.Enqueue(context.Background(), queue.Job{RunID: run, Tenant: fmt.Sprint(i)}, Append(run, First(run))); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				fmt.Println("enqueued", run)
			}
		}()
	}
	return h.Work(context.Background(), teller(h, func(run string) { fmt.Println("again", run) }))
}

// teller returns a handler that ends runs, and tells of those that have ended
// before.
func teller(h Host, again func(runID string)) queue.Handler {
	return func(ctx context.Context, l queue.Lease) error {
		evs, err := h.Log.Read(ctx, l.RunID)
		if err == nil && evs[len(evs)-1].Kind.Terminal() {
			again(l.RunID)
		}
		if err == nil {
			err = End(ctx, h.Log, l)
		}
		return err
	}
}

// Kill kills a process that enqueues and works, again and again, and wants every job
// that it was told of to be worked, once. The package's TestMain calls [Main].
func Kill(t *testing.T, open Opener, address string) {
	kills := 10
	if testing.Short() {
		kills = 3
	}
	var jobs []queue.Job
	again := make(map[string]int)
	for range kills {
		for _, line := range killOne(t, address, 50+rand.IntN(400)) {
			switch what, run, _ := strings.Cut(line, " "); what {
			case "enqueued":
				jobs = append(jobs, queue.Job{RunID: run})
			case "again":
				again[run]++
			}
		}
	}
	h := open.at(address)(t, killed())
	var mu sync.Mutex
	stop := work(t, h, teller(h, func(run string) {
		mu.Lock()
		defer mu.Unlock()
		again[run]++
	}))
	eventually(t, func() bool {
		s, err := h.Stats(t.Context())
		return err == nil && s == queue.Stats{}
	})
	stop()
	for _, j := range jobs {
		if r, err := eventlog.CheckRun(t.Context(), h.Log, j.RunID, eventlog.CheckOptions{Strict: true}); err != nil || r.Terminal != event.KindRunCompleted {
			t.Errorf("run %s: %+v, %v", j.RunID, r, err)
		}
	}
	// What ended as the process died may be handed out once more: as many as were at
	// work, and those whose end was about to be written down.
	if most := 2 * kills * killed().Workers; len(again) > most {
		t.Errorf("%d runs were handed out after their end, want at most %d", len(again), most)
	}
	t.Logf("%d kills, %d jobs acknowledged, all worked; %d handed out again after their run's end", kills, len(jobs), len(again))
}

// killOne lets a process say so many lines, kills it, and returns what it said.
func killOne(t *testing.T, address string, n int) (said []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+address)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); len(said) == n {
			cmd.Process.Kill()
		}
	}
	cmd.Wait() // "killed" is what it is supposed to say
	if len(said) < n {
		t.Errorf("the process ended by itself after %d lines", len(said))
	}
	return said
}
