package sqlitelog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/treetest"
)

// childEnv makes the test binary play the part that it names, instead of
// running tests; its arguments follow, separated by tabs.
const childEnv = "SQLITELOG_CHILD"

func TestMain(m *testing.M) {
	part, args, _ := strings.Cut(os.Getenv(childEnv), "\t")
	play, ok := map[string]func(...string) error{"": nil, "write": writeRuns, "crash": writeForEver, "full": writeUntilFull, "pieces": writeInPieces, "enqueue": enqueueForEver}[part]
	if !ok || play == nil {
		os.Exit(m.Run())
	}
	if err := play(strings.Split(args, "\t")...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child prepares the test binary to play a part.
func child(t testing.TB, part string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+part+"\t"+strings.Join(args, "\t"))
	cmd.Stderr = os.Stderr
	return cmd
}

const (
	childRuns    = 3
	childEffects = 20
)

// writeRuns records whole runs, each event with its barrier.
func writeRuns(args ...string) error {
	path, name := args[0], args[1]
	ctx := context.Background()
	l, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	for i := range childRuns {
		for _, e := range logtest.Finished(fmt.Sprintf("%s/%d", name, i), childEffects) {
			if err := errors.Join(l.Append(ctx, e.RunID, e), l.Sync(ctx, e.RunID)); err != nil {
				return err
			}
		}
	}
	return l.Close()
}

// TestManyProcessesWriteAtOnce begins with no file at all, so the processes
// also race to create it.
func TestManyProcessesWriteAtOnce(t *testing.T) {
	t.Parallel()
	const processes = 16
	path := filepath.Join(t.TempDir(), "log.db")
	var children []*exec.Cmd
	for i := range processes {
		cmd := child(t, "write", path, fmt.Sprintf("p%d", i))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, cmd)
	}
	l := openAt(t, path, Options{})
	ch, err := l.Stream(t.Context(), "p3/1")
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	stop := make(chan struct{})
	reading.Go(func() { readPrefixes(t, l, stop) })
	want := uint64(0)
	for e := range ch { // of another process, noticed by polling
		if want++; e.Seq != want {
			t.Fatalf("event %d, want %d", e.Seq, want)
		}
	}
	if want != childEffects+4 {
		t.Errorf("the stream ended after event %d", want)
	}
	for i, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	close(stop)
	reading.Wait()
	if runs, _ := readAll(t, l); len(runs) != processes*childRuns {
		t.Errorf("%d runs, want %d", len(runs), processes*childRuns)
	}
}

// readPrefixes checks whatever is listed, over and over.
func readPrefixes(t *testing.T, l *Log, stop <-chan struct{}) {
	for {
		runs, err := l.ListRuns(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for _, r := range runs {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
				t.Error(err)
				return
			}
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// writeForEver records runs in eight goroutines and prints, after each
// barrier, which event of which run is durable.
func writeForEver(args ...string) error {
	path, name := args[0], args[1]
	ctx := context.Background()
	l, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	var tell sync.Mutex
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				for i, e := range logtest.Finished(fmt.Sprintf("%s/%d/%d", name, g, n), 30) {
					err := l.Append(ctx, e.RunID, e)
					if i%(g+1) == 0 {
						err = errors.Join(err, l.Sync(ctx, e.RunID))
						tell.Lock()
						fmt.Printf("%s %d\n", e.RunID, e.Seq)
						tell.Unlock()
					}
					if err != nil {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(1)
					}
				}
			}
		})
	}
	all.Wait()
	return nil
}

// TestKilledProcessesLoseNothing kills a process that writes, again and again.
func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	kills := treetest.Count(5, 6, 50)
	path := filepath.Join(t.TempDir(), "log.db")
	total := 0
	for k := range kills {
		acked := killWriter(t, "crash", path, fmt.Sprintf("k%d", k), 10+rand.IntN(100))
		l := openAt(t, path, Options{})
		total += checkAcknowledged(t, l, acked)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d runs with acknowledged events, none lost", kills, total)
	l := openAt(t, path, Options{})
	runs, err := l.ListRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if _, err := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
			t.Error(err)
		}
	}
}

// killWriter lets a process write until it has acknowledged n barriers, and
// kills it in the middle of the next. It returns the last event of each run
// that was acknowledged before the process died.
func killWriter(t *testing.T, part, path, name string, n int) map[string]uint64 {
	t.Helper()
	cmd := child(t, part, path, name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := acknowledgements(t, bufio.NewScanner(out), func(told int) {
		if told == n {
			cmd.Process.Kill()
		}
	})
	cmd.Wait() // "killed" is the expected error
	return acked
}

// acknowledgements reads the lines "run seq" of a child.
func acknowledgements(t testing.TB, lines *bufio.Scanner, each func(told int)) map[string]uint64 {
	acked := make(map[string]uint64)
	for told := 1; lines.Scan(); told++ {
		var run string
		var seq uint64
		if n, _ := fmt.Sscan(lines.Text(), &run, &seq); n == 2 {
			acked[run] = max(acked[run], seq)
		}
		each(told)
	}
	if len(acked) == 0 {
		t.Error("the process acknowledged nothing")
	}
	return acked
}

// checkAcknowledged requires every acknowledged event to exist, in valid
// runs.
func checkAcknowledged(t testing.TB, l *Log, acked map[string]uint64) int {
	t.Helper()
	for run, seq := range acked {
		r, err := eventlog.CheckRun(t.Context(), l, run, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		if err != nil || r.Events < seq {
			t.Errorf("run %s: %d events, %d were acknowledged: %v", run, r.Events, seq, err)
		}
	}
	return len(acked)
}
