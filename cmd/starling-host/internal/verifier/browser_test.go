package verifier_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// browser is chromium with one page, which a test asks over the pipe of its debugger.
type browser struct {
	t       *testing.T
	to      io.Writer
	from    *bufio.Reader
	session string
	last    int
}

// open shows an address in a browser of its own.
func open(t *testing.T, address string) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("SKIPPED: there is no chromium: apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "--window-size=390,1600")
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirs, answers}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	answers.Close()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		to.Close()
		from.Close()
	})
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	target := b.ask("Target.createTarget", map[string]any{"url": address})
	b.session = b.ask("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	return b
}

// ask makes one request of the protocol, and reads past what it has not asked for.
func (b *browser) ask(method string, params map[string]any) map[string]any {
	b.t.Helper()
	b.last++
	request, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	if err == nil && b.session == "" {
		request, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err == nil {
		_, err = b.to.Write(append(request, 0))
	}
	for err == nil {
		var line []byte
		if line, err = b.from.ReadBytes(0); err != nil {
			break
		}
		var m struct {
			ID     int
			Result map[string]any
			Error  any
		}
		if err = json.Unmarshal(line[:len(line)-1], &m); err == nil && m.ID == b.last {
			if m.Error != nil {
				b.t.Fatalf("%s: %v", method, m.Error)
			}
			return m.Result
		}
	}
	b.t.Fatalf("%s: %v", method, err)
	return nil
}

// value returns the value of an expression in the page, as text.
func (b *browser) value(expression string) string {
	b.t.Helper()
	result := b.ask("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true})
	value, _ := result["result"].(map[string]any)
	return fmt.Sprint(value["value"])
}
