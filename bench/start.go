package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
)

// starts is how long a process takes from its start to the result of a Go tool.
type starts struct {
	size   int // of the tool
	first  time.Duration
	second time.Duration // median, with what the first has left in the cache
}

// processStarts builds the host and a tool, and runs it: first with nothing
// cached, then again.
func processStarts(ctx context.Context, again int) (starts, error) {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return starts{}, err
	}
	defer os.RemoveAll(dir)
	host, tool := filepath.Join(dir, "starling-host"), filepath.Join(dir, "dice.wasm")
	if err := execute(ctx, "..", nil, "go", "build", "-o", host, "./cmd/starling-host"); err != nil {
		return starts{}, err
	}
	wasip1 := []string{"GOOS=wasip1", "GOARCH=wasm"}
	if err := execute(ctx, filepath.Join("..", "tools-wasm"), wasip1, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", tool, "./dice"); err != nil {
		return starts{}, err
	}
	info, err := os.Stat(tool)
	if err != nil {
		return starts{}, err
	}
	run := func() (time.Duration, error) {
		began := time.Now()
		err := execute(ctx, dir, []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}, host, "run", tool, `{"rolls":5}`)
		return time.Since(began), err
	}
	s := starts{size: int(info.Size())}
	if s.first, err = run(); err != nil {
		return s, err
	}
	var seconds []float64
	for range again {
		took, err := run()
		if err != nil {
			return s, err
		}
		seconds = append(seconds, took.Seconds())
	}
	s.second = time.Duration(figures.Median(seconds) * float64(time.Second))
	return s, nil
}

func execute(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
