package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// riverlite is the program that works River's own jobs on SQLite. See its comment for
// why it is one.
type riverlite struct{ dir, program string }

// buildRiverlite builds the program, or finds it built.
func (b *bench) buildRiverlite(ctx context.Context) (riverlite, error) {
	r := riverlite{b.dir, filepath.Join(b.dir, "riverlite")}
	if _, err := os.Stat(r.program); err == nil {
		return r, nil
	}
	module, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err == nil {
		_, err = output(ctx, "go", "build", "-C", filepath.Join(module, "riverlite"), "-o", r.program, ".")
	}
	return r, err
}

// workOff works off that many jobs that were inserted before.
func (r riverlite) workOff(workers, jobs int) func(context.Context, time.Duration) (float64, error) {
	return func(ctx context.Context, _ time.Duration) (float64, error) {
		return r.rate(ctx, "-workers", fmt.Sprint(workers), "-backlog", fmt.Sprint(jobs))
	}
}

// inserting lets as many callers as there are workers insert jobs one by one.
func (r riverlite) inserting(workers int) func(context.Context, time.Duration) (float64, error) {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		return r.rate(ctx, "-workers", fmt.Sprint(workers), "-callers", fmt.Sprint(workers), "-for", d.String())
	}
}

// rate runs the program on a new file and returns what it prints.
func (r riverlite) rate(ctx context.Context, args ...string) (perSecond float64, err error) {
	dir, err := os.MkdirTemp(r.dir, "river-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	out, err := output(ctx, r.program, append(args, "-file", filepath.Join(dir, "jobs.db"))...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(out, 64)
}

// output returns the line that a program prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w\n%s", name, args, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}
