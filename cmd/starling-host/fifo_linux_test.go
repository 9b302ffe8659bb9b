package main

import (
	"context"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-host/starling/internal/terminal"
)

// TestNamedPipesKeepNoCommand gives a named pipe in all places of a file that a command reads or
// writes. Without an other end, and with one that does nothing, a command refuses the pipe, or waits
// for it and ends with its context: the first Ctrl-C is enough.
func TestNamedPipesKeepNoCommand(t *testing.T) {
	skipShort(t)
	modules, err := os.OpenRoot("../../spec/tck/modules")
	if err != nil {
		t.Fatal(err)
	}
	defer modules.Close()
	t.Chdir(t.TempDir())
	for to, from := range map[string]string{"clock.wasm": "clock.wasm", "program.wasm": "command_input.wasm"} {
		wasm, err := modules.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, wasm, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(ctx context.Context, args ...string) int {
		a := &app{stdin: strings.NewReader(""), stdout: terminal.New(new(strings.Builder)), stderr: terminal.New(t.Output())}
		return a.execute(ctx, args)
	}
	for _, args := range [][]string{
		{"run", "clock.wasm", "{}"}, {"seal", "keygen", "seal.key"}, {"tool", "push", "clock.wasm", "oci-layout:./layout:1.0"},
	} {
		if code := run(t.Context(), args...); code != exitOK {
			t.Fatalf("%v: exit code %d", args, code)
		}
	}
	for _, line := range []string{
		"run clock.wasm @PIPE", "run program.wasm --stdin @PIPE", "agent run agent.yaml @PIPE", "run PIPE", "run clock.wasm --policy PIPE", "run clock.wasm --trust PIPE",
		"archive --check PIPE", "import new.db PIPE", "validate PIPE", "restore PIPE new.db", "verify PIPE", "verify starling.db --key PIPE", "verify starling.db --checkpoint PIPE",
		"seal starling.db --key PIPE", "receipt starling.db @last --key PIPE", "bundle @last --receipts PIPE -o new.starling", "tool sign clock.wasm --key PIPE", "mcp --tool clock.wasm --receipts PIPE", "show starling.db @last --key-file PIPE",
		"bundle @last -o PIPE", "bundle @last --html -o PIPE", "tool pull oci-layout:./layout:1.0 PIPE", "seal starling.db --key seal.key --checkpoint PIPE", "replay @last --profile PIPE",
	} {
		for _, other := range []bool{false, true} {
			name := line
			if other {
				name += ", with another end"
			}
			t.Run(name, func(t *testing.T) {
				pipe := t.TempDir() + "/pipe"
				if err := unix.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := -1 // which never reads or writes
				connect := func() {
					if end, err = unix.Open(pipe, unix.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
						t.Fatal(err)
					}
				}
				if other {
					connect()
				}
				ended := make(chan int, 1)
				go func() { ended <- run(ctx, strings.Fields(strings.ReplaceAll(line, "PIPE", pipe))...) }()
				for waits, since := false, time.Now(); ; runtime.Gosched() {
					select {
					case code := <-ended:
						if code == exitOK && !other {
							t.Error("it succeeds without the file")
						}
						for unix.Close(end); awaited() > 0 && time.Since(since) < time.Minute; unix.Close(end) {
							connect() // for a moment, which ends what waits still
						}
						return
					default:
						if time.Since(since) > time.Minute { // it hangs
							t.Fatalf("it does not end; where it waits, the end of the context is seen: %v", waits)
						}
					}
					if !waits && awaited() > 0 {
						waits = true
						cancel()
					}
				}
			})
		}
	}
}

// awaited returns how many functions of [await.Do] wait in the system, or for it.
func awaited() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return len(waitingInSystem.FindAll(stacks, -1))
}

var waitingInSystem = regexp.MustCompile(`goroutine \d+ [^\n]*\[(syscall|IO wait)[^\n]*\n([^\n]+\n)*[^\n]*/await\.Do\[`)
