package inspect_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
)

// screenshots names a folder that pictures of the pages are written to. Without it they are
// artefacts of the test.
const screenshots = "STARLING_SCREENSHOTS"

// patience is how long a browser has for anything, on a busy machine.
const patience = 2 * time.Minute

// chromium is a browser with one page and without a window. It is driven through its pipe, as
// DevTools do.
type chromium struct {
	t       *testing.T
	base    string
	out     *os.File
	frames  chan devtoolsFrame
	session string // of the page
	last    int
	console string // what the browser said about scripts and policies on this page
	loads   int    // pages that were loaded
}

// devtoolsFrame is an answer, or an event.
type devtoolsFrame struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// newChromium starts the browser, and serves a handler to it.
func newChromium(t *testing.T, h http.Handler) *chromium {
	t.Helper()
	treetest.Needs(t, "chromium")
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	var said bytes.Buffer
	cmd.Stderr, cmd.ExtraFiles = &said, []*os.File{theirs, write}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	write.Close()
	c := &chromium{t: t, base: server.URL, out: ours, frames: make(chan devtoolsFrame, 1<<16)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(c.frames)
		for r := bufio.NewReader(read); ; {
			text, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var f devtoolsFrame
			if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &f) == nil {
				c.frames <- f
			}
		}
	}()
	t.Cleanup(func() {
		c.send("", "Browser.close", nil)
		killing := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		_ = cmd.Wait() // some versions fail at the end
		killing.Stop()
		ours.Close()
		read.Close()
		<-ended
		for text := range strings.Lines(said.String()) {
			if t.Failed() && !strings.Contains(text, "dbus") { // of a desktop
				t.Log(text)
			}
		}
	})
	var target struct{ TargetID, SessionID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	c.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

func (c *chromium) send(session, method string, params any) {
	c.last++
	frame, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Session   string `json:"sessionId,omitempty"`
		Method    string `json:"method"`
		Parameter any    `json:"params,omitempty"`
	}{c.last, session, method, params})
	if err != nil {
		c.t.Fatal(err)
	}
	_, _ = c.out.Write(append(frame, 0)) // a browser that has gone does not answer
}

// call calls a method of the DevTools protocol.
func (c *chromium) call(method string, params, result any) {
	c.t.Helper()
	if err := c.try(method, params, result); err != nil {
		c.t.Fatal(err)
	}
}

// try is call for what may be interrupted by a page that loads itself again.
func (c *chromium) try(method string, params, result any) (err error) {
	c.t.Helper()
	c.send(c.session, method, params)
	id := c.last
	c.await(method, func(f devtoolsFrame) bool {
		switch {
		case f.ID != id:
			return false
		case f.Error != nil:
			err = fmt.Errorf("chromium: %s: %s", method, f.Error.Message)
		case result != nil:
			err = json.Unmarshal(f.Result, result)
		}
		return true
	})
	return err
}

// await takes what comes from the browser until it is what was waited for.
func (c *chromium) await(what string, found func(devtoolsFrame) bool) {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case f, ok := <-c.frames:
			if !ok {
				c.t.Fatalf("chromium ended: %s", what)
			}
			switch f.Method {
			case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
				c.console += string(f.Params) + "\n"
			case "Page.loadEventFired":
				c.loads++
			}
			if found(f) {
				return
			}
		case <-timeout:
			c.t.Fatalf("chromium: %s did not happen in %v; console: %s", what, patience, c.console)
		}
	}
}

// open loads an address.
func (c *chromium) open(address string) {
	c.t.Helper()
	c.console = ""
	c.loading(func() {
		var to struct{ ErrorText, LoaderID string }
		if c.call("Page.navigate", map[string]any{"url": c.base + address}, &to); to.ErrorText != "" {
			c.t.Fatalf("%s: %s", address, to.ErrorText)
		}
		if to.LoaderID == "" { // the same page, at a fragment
			c.call("Page.reload", nil, nil)
		}
	})
}

// loading does something, and waits for the page that it loads.
func (c *chromium) loading(do func()) {
	c.t.Helper()
	before := c.loads
	do()
	if c.loads == before {
		c.await("a page", func(devtoolsFrame) bool { return c.loads > before })
	}
}

// eval sets result to the value of an expression, or of its promise.
func (c *chromium) eval(expression string, result any) {
	c.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	if got.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", expression, got.ExceptionDetails.Exception.Description)
	}
	if result != nil && got.Result.Value != nil {
		if err := json.Unmarshal(got.Result.Value, result); err != nil {
			c.t.Fatal(err)
		}
	}
}

// until waits until an expression is true, also if pages load themselves again meanwhile.
func (c *chromium) until(expression string) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		var got struct{ Result struct{ Value bool } }
		if c.try("Runtime.evaluate", map[string]any{"expression": "!!(" + expression + ")", "returnByValue": true}, &got) == nil && got.Result.Value {
			return
		}
	}
	var text string
	c.eval("document.body.innerText + (document.querySelector(\"iframe\")?.src || \"\")", &text)
	c.t.Fatalf("it is never true: %s in %.3000s", expression, text)
}

// click presses the mouse on the first element that a selector selects, where a user would.
func (c *chromium) click(selector string) {
	c.t.Helper()
	var at struct {
		X, Y float64
		Hit  bool
	}
	quoted, _ := json.Marshal(selector)
	c.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%s); if (!e) throw Error("no such element");
		e.scrollIntoView({ block: "center" }); const b = e.getClientRects()[0], x = b.left + b.width / 2, y = b.top + b.height / 2,
		hit = document.elementFromPoint(x, y); return { X: x, Y: y, Hit: e.contains(hit) || hit.contains(e) } })()`, quoted), &at)
	if !at.Hit {
		c.t.Errorf("%s: something lies over it", selector)
	}
	for _, what := range []string{"mousePressed", "mouseReleased"} {
		c.call("Input.dispatchMouseEvent", map[string]any{"type": what, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// follow clicks on something that loads a page, and returns the path of that.
func (c *chromium) follow(selector string) (path string) {
	c.t.Helper()
	c.console = ""
	c.loading(func() { c.click(selector) })
	c.eval("location.pathname + location.search", &path)
	return path
}

// dom returns the document as it is now.
func (c *chromium) dom() (html string) {
	c.t.Helper()
	c.eval("document.documentElement.outerHTML", &html)
	return html
}

// shows loads an address and fails the test unless the document gets all of these
// words, and no script is refused or fails.
func (c *chromium) shows(address string, words ...string) string {
	c.t.Helper()
	c.open(address)
	for _, word := range words {
		if quoted, _ := json.Marshal(word); !strings.Contains(c.dom(), word) {
			c.until("document.documentElement.outerHTML.includes(" + string(quoted) + ")")
		}
	}
	if c.console != "" {
		c.t.Errorf("%s: the browser says: %s", address, c.console)
	}
	return c.dom()
}

// photograph writes pictures of an address for people: light, dark, and on a phone. It fails the
// test if there is nothing on them.
func (c *chromium) photograph(name, address string) {
	c.t.Helper()
	dir := cmp.Or(os.Getenv(screenshots), c.t.ArtifactDir())
	for _, look := range []struct {
		name, scheme string
		width        int
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"phone", "light", 390}} {
		c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": look.scheme}}}, nil)
		c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": look.width < 500}, nil)
		c.open(address)
		var height float64
		c.eval("document.fonts.ready.then(() => document.documentElement.scrollHeight)", &height)
		c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": look.width, "height": int(min(max(height, 700), 2400)), "deviceScaleFactor": 1, "mobile": look.width < 500}, nil)
		var shot struct{ Data string }
		c.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
		picture, err := base64.StdEncoding.DecodeString(shot.Data)
		if err != nil {
			c.t.Fatal(err)
		}
		if image, err := png.Decode(bytes.NewReader(picture)); err != nil || len(picture) < 5000 || image.Bounds().Dx() != look.width {
			c.t.Errorf("%s: no picture: %d bytes, %v", address, len(picture), err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+"-"+look.name+".png"), picture, 0o600); err != nil {
			c.t.Error(err)
		}
	}
	c.call("Emulation.clearDeviceMetricsOverride", nil, nil)
	c.call("Emulation.setEmulatedMedia", map[string]any{}, nil)
}
