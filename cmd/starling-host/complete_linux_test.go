package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/internal/treetest"
)

// TestShellsCompleteHarmlessWords asks for what each command completes, over a log with
// hostile ids. A shell evaluates what it is told, so all of it must be plain words.
func TestShellsCompleteHarmlessWords(t *testing.T) {
	files := newHostileFiles(t)
	t.Chdir(files.dir)
	offered := map[string]bool{}
	eachCommand((&app{stdout: terminal.New(io.Discard), stderr: terminal.New(io.Discard)}).root(), func(cmd *cobra.Command) {
		for i := range strings.Fields(cmd.Use) {
			args := append([]string{"__complete"}, strings.Fields(cmd.CommandPath())[1:]...)
			for _, word := range strings.Fields(cmd.Use)[1:][:max(i-1, 0)] {
				args = append(args, strings.ReplaceAll(files.of(t, cmd, strings.Trim(word, "[]"))[0], "DIR", files.dir))
			}
			for _, begun := range []string{"", "0", "-", "--", "$", "@"} {
				var out strings.Builder
				a := &app{stdin: strings.NewReader(""), stdout: terminal.New(&out), stderr: terminal.New(new(strings.Builder))}
				if code := a.execute(t.Context(), append(args, begun)); code != exitOK {
					t.Errorf("%q: exit code %d", args, code)
				}
				for line := range strings.Lines(out.String()) {
					word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
					offered[word] = true
					if plain := strings.TrimPrefix(strings.TrimLeft(word, "-:"), "@"); plain != "" && eventlog.CheckRunID(strings.TrimSuffix(plain, "=")) != nil {
						t.Errorf("%q offers %q", args, word)
					}
				}
			}
		}
	})
	if !offered[starling.LastRun] || !offered["--output"] {
		t.Errorf("only these words are offered: %v", offered)
	}
}

// TestCompletionRunsNoCommand types into real shells, with the scripts that this program makes
// for them, over a log with two ids that begin with the same command.
func TestCompletionRunsNoCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var events []event.Event
	for _, id := range []string{"01`touch${IFS}PWNED`a", "01`touch${IFS}PWNED`b", "02FINE", "03$(touch${IFS}PWNED)a", "03$(touch${IFS}PWNED)b"} {
		events = append(events, logtest.Finished(id, 0)...)
	}
	writeSeedLog(t, filepath.Join(dir, "seed.db"), events)
	for name, shell := range map[string]struct {
		args  []string
		setup string
	}{
		"bash": {[]string{"--norc", "--noprofile", "-i"}, // of the package bash-completion the script needs this function
			"_get_comp_words_by_ref() { words=(\"${COMP_WORDS[@]}\"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }; source <(starling-host completion bash)"},
		"zsh":  {[]string{"-f", "-i"}, "autoload -U compinit; compinit -D -u; source <(starling-host completion zsh); compdef _starling-host starling-host"},
		"fish": {[]string{"--no-config", "-c"}, "starling-host completion fish | source; complete -C 'starling-host show seed.db 01'; complete -C 'starling-host show seed.db 03'; starling-host show seed.db (complete -C 'starling-host show seed.db 02' | string split -f1 \\t)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			treetest.Needs(t, name)
			cmd := exec.Command(name, shell.args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "TERM=dumb", "HOME="+t.TempDir(), "PS1=$ ")
			var said string
			if name == "fish" { // which asks the terminal questions when it has one
				cmd.Args = append(cmd.Args, shell.setup)
				out, _ := cmd.CombinedOutput()
				said = string(out)
			} else {
				said = typed(t, cmd, shell.setup+"\r", "starling-host show seed.db 01\t\t\t\x15", "starling-host show seed.db 03\t\t\t\x15", "starling-host show seed.db 02\t\r", "exit\r")
			}
			if _, err := os.Stat(filepath.Join(dir, "PWNED")); err == nil {
				t.Errorf("a command of the log was executed:\n%s", said)
			}
			if !strings.Contains(said, "run      02FINE") {
				t.Errorf("the id was not completed:\n%s", said)
			}
		})
	}
}

// typed runs an interactive program with keys typed, each once the program has printed a
// prompt, and returns what it printed.
func typed(t *testing.T, cmd *exec.Cmd, keys ...string) string {
	t.Helper()
	keyboard, terminal := pseudoTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer stop.Stop()
	terminal.Close()
	for _, key := range keys {
		if _, err := keyboard.WriteString(key); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	said.ReadFrom(keyboard) // until the last process that has the terminal ends
	cmd.Wait()
	return said.String()
}
