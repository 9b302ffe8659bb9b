package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/registry"
)

// TestHelpExamples runs every example of every help text, in a folder with the
// tool dice and a database that has a run.
func TestHelpExamples(t *testing.T) {
	dir := exampleFolder(t)
	root := (&app{stdin: os.Stdin, stdout: t.Output(), stderr: t.Output()}).root()
	seen := 0
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			seen++
			shell := exec.Command("sh", "-c", strings.TrimSpace(line))
			shell.Dir = dir
			if out, err := shell.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
			}
		}
	})
	if seen < 10 {
		t.Errorf("only %d examples were found", seen)
	}
}

// eachCommand visits the commands that this package defines.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.Name() != "completion" && sub.Name() != "help" {
			eachCommand(sub, visit)
		}
	}
}

// exampleFolder returns a folder with dice.wasm and starling.db, and puts the
// program into PATH. The test binary is the program when it is called so.
func exampleFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	caches, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(caches)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dice, err := registry.Open(t.Context(), "../../tools-wasm/dice")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dice.wasm"), dice.Wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "starling-host")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	run := exec.Command("starling-host", "run", "dice.wasm")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
