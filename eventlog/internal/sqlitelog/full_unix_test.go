//go:build unix

package sqlitelog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"golang.org/x/sys/unix"
)

// writeUntilFull writes with eight goroutines until a file can grow no more, either
// events or, as its second argument says, whole runs that wait.
func writeUntilFull(args ...string) error {
	ctx := context.Background()
	l, err := Open(ctx, args[0], Options{})
	if err != nil {
		return err
	}
	if err := l.CreateTables(ctx, waiting); err != nil {
		return err
	}
	signal.Ignore(unix.SIGXFSZ)
	const limit = 600 << 10
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	var tell sync.Mutex
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			c := logtest.Chain{RunID: fmt.Sprintf("run-%d", g)}
			e := c.Start("g")
			for n := 0; ; n++ {
				var err error
				if args[1] == "transact" {
					c := logtest.Chain{RunID: fmt.Sprintf("run-%d-%d", g, n)}
					e = c.Start(strings.Repeat("goal", 250))
					err = begin(ctx, l, e)
				} else if err = l.Append(ctx, e.RunID, e); err == nil {
					err = l.Sync(ctx, e.RunID)
				}
				tell.Lock()
				if err != nil {
					fmt.Printf("stopped %v\n", errors.Is(err, eventlog.ErrLogStopped))
					tell.Unlock()
					return
				}
				fmt.Printf("%s %d\n", e.RunID, e.Seq)
				tell.Unlock()
				e = c.Effect(1000)
			}
		})
	}
	all.Wait()
	// The file may still have room for a small event, and then the log continues.
	c := logtest.Chain{RunID: "later"}
	if err := begin(ctx, l, c.Start("g")); err != nil {
		fmt.Printf("stopped %v\n", errors.Is(err, eventlog.ErrLogStopped))
	} else {
		fmt.Println("later 1")
	}
	if err := l.Close(); err != nil && !errors.Is(err, eventlog.ErrLogStopped) {
		return err
	}
	return nil
}

// TestFullDisk gives the process a limit on the size of its files, which is
// met in the middle of a commit.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	t.Run("of events", func(t *testing.T) {
		l, acked := fillDisk(t, "append")
		if n := checkAcknowledged(t, l, acked); n == 0 { // a slow process may have stored nothing before the disk is full
			t.Error("nothing was acknowledged")
		}
	})
	t.Run("of transactions", func(t *testing.T) {
		l, acked := fillDisk(t, "transact")
		checkAcknowledged(t, l, acked)
		rows := waitingRuns(t, l)
		if runs, _ := readAllOpen(t, l); len(runs) != len(rows) || len(rows) < len(acked) {
			t.Errorf("%d runs, %d rows, %d acknowledged", len(runs), len(rows), len(acked))
		}
	})
}

// fillDisk fills the disk and returns the log and the events acknowledged until
// then.
func fillDisk(t *testing.T, with string) (*Log, map[string]uint64) {
	path := filepath.Join(t.TempDir(), "log.db")
	cmd := child(t, "full", path, with)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := 0
	lines := bufio.NewScanner(out)
	acked := make(map[string]uint64)
	for lines.Scan() {
		var run string
		var seq uint64
		switch text := lines.Text(); {
		case text == "stopped true":
			stopped++
		default:
			if _, err := fmt.Sscan(text, &run, &seq); err != nil {
				t.Errorf("the process says %q", text)
			}
			acked[run] = seq
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if stopped+int(acked["later"]) != 9 {
		t.Errorf("%d of 8 waiters and of a later Transact were told that the log has stopped", stopped)
	}
	return openAt(t, path, Options{}), acked
}
