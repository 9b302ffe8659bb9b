package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/terminal"
)

// TestToolDev changes the module of a tool while the command watches it.
func TestToolDev(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "draw.wasm")
	put := func(path string, content []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil { // so that half a file is never seen
			t.Fatal(err)
		}
	}
	build := func(name string) []byte {
		t.Helper()
		m, err := guest.Find(t.Context(), filepath.Join("testdata", "tools", name))
		if err != nil {
			t.Fatal(err)
		}
		return m.Wasm
	}
	put(path, build("draw"))

	ctx, cancel := context.WithTimeout(t.Context(), awaitTime)
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan int, 1)
	a := &app{stdin: strings.NewReader(""), stdout: terminal.New(in), stderr: terminal.New(t.Output())}
	go func() {
		code := a.execute(ctx, []string{"tool", "dev", path, "{}"})
		in.Close()
		ended <- code
	}()
	lines := bufio.NewScanner(out)
	screen := func(want ...string) {
		t.Helper()
		var text strings.Builder
		for lines.Scan() {
			text.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "watching ") {
				break
			}
		}
		for _, part := range want {
			if !strings.Contains(text.String(), part) {
				t.Errorf("no %q in\n%s", part, text.String())
			}
		}
	}
	screen("input    {}\n", "output   {\n", `"rolled": `, "fuel     ", "effects  2\n", "now = 20", "replay   identical: 6 events\n", "watching "+path)
	put(path, []byte("no module"))
	screen("failed after ", "error: module refused: ")
	put(path, build("draw-next"))
	screen("change     {\n", "\n         - ", "\n         + ", " (was ", "replay   identical: ")
	put(filepath.Join(dir, "cases", "one.txtar"), []byte("-- input.json --\n{}\n-- output.json --\n{}\n"))
	screen("cases    1 of 1 fail: one; see why: starling-host tool test ")
	cancel()
	for lines.Scan() {
	}
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
