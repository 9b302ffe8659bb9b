package verifier_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
)

// browser is chromium with one page, which a test asks over the pipe of its debugger.
type browser struct {
	t       *testing.T
	to      io.Writer
	from    *bufio.Reader
	target  map[string]any
	session string
	last    int
}

// newBrowser starts one, which ends with the test.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	treetest.Needs(t, "chromium")
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+dir, "--remote-debugging-pipe", "--window-size=390,1600")
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
		for range 100 { // its children end a little later, and write until then
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return &browser{to: to, from: bufio.NewReader(from)}
}

// open shows an address, in place of the one before.
func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	b.t = t
	if b.target != nil {
		b.session = ""
		b.ask("Target.closeTarget", b.target)
	}
	b.target = map[string]any{"targetId": b.ask("Target.createTarget", map[string]any{"url": address})["targetId"]}
	b.session = b.ask("Target.attachToTarget", map[string]any{"targetId": b.target["targetId"], "flatten": true})["sessionId"].(string)
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

// shot writes a picture of all of the page.
func (b *browser) shot(path string) {
	b.t.Helper()
	data, err := base64.StdEncoding.DecodeString(b.ask("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true})["data"].(string))
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}
