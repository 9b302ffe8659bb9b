package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/terminal"
)

// TestInspectShowsADatabase records a run, opens the address that is printed, and
// lets the page replay the run.
func TestInspectShowsADatabase(t *testing.T) {
	skipShort(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "starling.db")
	if code := Main([]string{"run", filepath.Join("testdata", "tools", "draw"), "--db", db}, strings.NewReader(""), io.Discard, io.Discard); code != exitOK {
		t.Fatalf("run: exit code %d", code)
	}
	address := inspected(t, "", db)
	page := ask(t, "GET", address, "/")
	_, rest, ok := strings.Cut(page, `href="/runs/`)
	if !ok {
		t.Fatalf("the list has no run: %s", page)
	}
	run, _, _ := strings.Cut(rest, `"`)
	if page := ask(t, "POST", address, "/runs/"+run+"/replay"); !strings.Contains(page, "identical</span> The replay produced the same 6 events") {
		t.Errorf("replay: %s", page)
	}
	fuel := ask(t, "POST", address, "/runs/"+run+"/fuel")
	for strings.Contains(fuel, `value="cancel"`) {
		fuel = ask(t, "GET", address, "/runs/"+run+"/fuel")
	}
	for _, word := range []string{`aria-label="draw: `, `aria-label="main.`, "of the run</b> 100.0%", `json.go:`} {
		if !strings.Contains(fuel, word) {
			t.Errorf("fuel: no %q in %s", word, fuel)
		}
	}
	if page := ask(t, "POST", address, "/runs/"+run+"/validate"); !strings.Contains(page, "valid</span> All 6 events") {
		t.Errorf("validate: %s", page)
	}
	// A call that was stopped leads to its code.
	if code := Main([]string{"run", filepath.Join("testdata", "tools", "draw"), "--db", db, "--fuel", "50k"}, strings.NewReader(""), io.Discard, io.Discard); code == exitOK {
		t.Fatal("50,000 units were enough")
	}
	_, rest, _ = strings.Cut(ask(t, "GET", address, "/"), `href="/runs/`)
	stopped, _, _ := strings.Cut(rest, `"`)
	if page := ask(t, "POST", address, "/runs/"+stopped+"/replay"); stopped == run || !strings.Contains(page, "In the code of the tool</h3>") || !strings.Contains(page, ".go:") || !strings.Contains(page, "starling-host debug ") {
		t.Errorf("replay of a call that was stopped: %s", page)
	}
}

// TestInspectListensWhereItSays has all addresses of IPv4 be those and no others.
func TestInspectListensWhereItSays(t *testing.T) {
	l, _, err := listenToInspect("0.0.0.0:0", "a secret")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ip := l.Addr().(*net.TCPAddr).IP; ip.To4() == nil {
		t.Errorf("it listens at %s", ip)
	}
}

// listening runs a command that serves until the end of the test, and returns the first line that it prints.
func listening(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	out, in := io.Pipe()
	done := make(chan int, 1)
	var log strings.Builder
	a := &app{stdin: strings.NewReader(""), stdout: terminal.New(in), stderr: terminal.New(&log)}
	go func() {
		code := a.execute(ctx, args)
		in.Close()
		done <- code
	}()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	go io.Copy(io.Discard, lines)
	t.Cleanup(func() { // before its folder is removed
		stop()
		if code := <-done; code != exitOK || err != nil {
			t.Errorf("%s: exit code %d, %v\n%s", args, code, err, &log)
		}
	})
	if err != nil {
		t.FailNow()
	}
	return line
}

// inspected serves a database until the end of the test, and returns its address.
func inspected(t *testing.T, keyFile, db string) *url.URL {
	t.Helper()
	line := listening(t, withMaster([]string{"inspect", db, "--addr", "127.0.0.1:0"}, keyFile)...)
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil || address.Fragment == "" {
		t.Fatalf("printed %q, %v", line, err)
	}
	return address
}

// ask asks as a program does that has the token.
func ask(t *testing.T, method string, address *url.URL, path string) string {
	t.Helper()
	_, text := request(t, method, address, path)
	return text
}

// request is ask, and returns the status of the answer as well.
func request(t *testing.T, method string, address *url.URL, path string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address.Scheme+"://"+address.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+address.Fragment)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
