package simtest

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/starling-host/starling/internal/treetest"
)

var one = flag.Uint64("seed", 0, "run this schedule alone, and print the log of its hosts")

// failed is the seeds that have failed once. They run first. Whoever finds a seed that fails adds
// it there.
const failed = "testdata/failed"

// TestSchedules runs the schedules that have failed once, then those of seeds from 1 on.
func TestSchedules(t *testing.T) {
	if *one != 0 {
		runSeed(t, *one, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
		return
	}
	kept, err := os.ReadFile(failed)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(kept)) {
		field, _, _ := strings.Cut(line, " ")
		seed, err := strconv.ParseUint(strings.TrimSpace(field), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", failed, err)
		}
		runSeed(t, seed, nil)
	}
	last := uint64(treetest.Count(100, 1000, 100_000))
	var next atomic.Uint64
	for part := range 2 {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1); seed <= last && !t.Failed(); seed = next.Add(1) {
				runSeed(t, seed, nil)
			}
		})
	}
}

func runSeed(t *testing.T, seed uint64, logger *slog.Logger) {
	t.Helper()
	again := fmt.Sprintf("go test ./serve/internal/simtest -run TestSchedules -count 20 -seed %d", seed)
	defer func() {
		if r := recover(); r != nil { // such as that all goroutines wait for ever
			t.Logf("seed %d; alone: %s", seed, again)
			panic(r)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range runSchedule(t, seed, logger) {
			t.Errorf("seed %d: %s\nalone: %s", seed, failure, again)
		}
	})
}
