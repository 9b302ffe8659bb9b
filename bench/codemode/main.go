// Codemode measures what it is worth that a model writes a program (run_js) instead of
// calling one tool after the other, and what one such program costs.
//
//	go run . [-quick] [-parts task,calls,starts] [-out ../results/codemode.md]
//
// The part task gives a model of a script 36 tools of three MCP servers from npm. It makes
// ten calls of which each needs what the one before returned: once in a program, once
// with one call a turn. The part calls compares a call of run_js with other ways to
// run the same program, and the part starts the first call of a process. In both, all
// take turns in short rounds, and what is reported are medians.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// settings say how long to measure.
type settings struct {
	rounds int
	slice  time.Duration // of one contender in one round
	starts int           // of each program
}

func main() {
	quick := flag.Bool("quick", false, "a few short rounds: shows that it works, not how fast")
	parts := flag.String("parts", "task,calls,starts", "comma-separated parts")
	out := flag.String("out", "", "file for the report (default: print only)")
	flag.Parse()
	s := settings{rounds: 15, slice: 100 * time.Millisecond, starts: 9}
	if *quick {
		s = settings{rounds: 2, slice: 5 * time.Millisecond, starts: 2}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // so that what was started ends
	defer stop()
	text, err := run(ctx, s, *parts)
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "codemode:", err)
		os.Exit(1)
	}
}

// run measures the parts, prints the report part by part, and returns it.
func run(ctx context.Context, s settings, parts string) (text string, err error) {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	host := filepath.Join(dir, "starling-host")
	if _, err := command(ctx, "../..", nil, "go", "build", "-o", host, "./cmd/starling-host"); err != nil {
		return "", err
	}
	text = fmt.Sprintf("On %s/%s, %d processors, %s. Made with `make bench-code`.\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Print(text)
	for name := range strings.SplitSeq(parts, ",") {
		measure, ok := map[string]func(context.Context, settings, string, string) (string, error){
			"task": measureTask, "calls": measureCalls, "starts": measureStarts,
		}[name]
		if !ok {
			return "", fmt.Errorf("there is no part %q", name)
		}
		fmt.Fprintf(os.Stderr, "%s ...\n", name)
		part, err := measure(ctx, s, host, dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		fmt.Print("\n", part)
		text += "\n" + part
	}
	return text, nil
}

// command runs a program and returns its standard output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, failed.Stderr)
	}
	return out, err
}
