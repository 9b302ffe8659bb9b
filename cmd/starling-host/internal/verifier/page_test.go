package verifier_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/verifier"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/sandbox"
)

// dice is a bundle of a run of the tool dice, sealed if there is a key.
func dice(t *testing.T, key *seal.Key) []byte {
	t.Helper()
	db, err := starling.Open(t.Context(), filepath.Join(t.TempDir(), "starling.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	program, err := db.Load(t.Context(), filepath.Join("..", "..", "..", "..", "tools-wasm", "dice"), starling.ToolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run, err := program.Call(t.Context(), `{}`)
	if err != nil {
		t.Fatal(err)
	}
	if key != nil {
		if _, err := db.Seal(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	b, err := db.Bundle(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	file, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// verdict waits for that of a page with a bundle, and returns it and all of the page's text.
func verdict(t *testing.T, bundle []byte) (title, text string, b *browser) {
	t.Helper()
	page, err := verifier.Page(bundle, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if beside := len(page) - len(bundle)*4/3; beside > 5_000_000 {
		t.Errorf("the page has %d bytes beside the bundle", beside)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
	b = open(t, "file://"+path)
	for range 1500 {
		switch b.value(`document.getElementById("verdict")?.className`) {
		case "good", "mid", "bad":
			if b.value(`document.documentElement.scrollWidth > innerWidth`) != "false" {
				t.Error("the page is wider than its window")
			}
			return b.value(`document.getElementById("verdict").textContent`), b.value(`document.querySelector("main").innerText`), b
		}
		time.Sleep(100 * time.Millisecond) // only to ask less often
	}
	t.Fatalf("no verdict: %s", b.value(`document.body.innerText`))
	return "", "", nil
}

// TestPage opens pages in a browser: the run is executed there, a bundle that was changed is
// invalid, and a signature counts if the reader gives the key.
func TestPage(t *testing.T) {
	bundle := dice(t, nil)
	title, text, _ := verdict(t, bundle)
	if title != "Identical" || !strings.Contains(text, "The engine of your browser executed 1 run again") || !strings.Contains(text, "Nobody says") {
		t.Errorf("%s\n%s", title, text)
	}
	changed := bytes.Replace(bundle, []byte("ToolCallCompleted"), []byte("ToolCallCompletee"), 1)
	if title, text, _ = verdict(t, changed); title != "Invalid" || !strings.Contains(text, "runs.ndjson") {
		t.Errorf("%s\n%s", title, text)
	}
	var keys [2]*seal.Key
	for i := range keys {
		var err error
		if keys[i], err = seal.NewKey("example.com/runs"); err != nil {
			t.Fatal(err)
		}
	}
	title, text, b := verdict(t, dice(t, keys[0]))
	if title != "Identical" || !strings.Contains(text, "not checked: no key was given") {
		t.Errorf("%s\n%s", title, text)
	}
	for i, want := range []string{"Signed by", ""} {
		b.value(fmt.Sprintf(`at("who").textContent = ""; at("key").value = %q; at("trust").requestSubmit()`, keys[i].VKey()))
		who := ""
		for range 300 {
			if who = b.value(`at("who").textContent`); who != "" {
				break
			}
			time.Sleep(100 * time.Millisecond) // only to ask less often
		}
		if title := b.value(`at("verdict").textContent`); !strings.Contains(who, want) || (title == "Identical") != (i == 0) || i == 1 && strings.Contains(who, "Signed by") {
			t.Errorf("key %d: %s: %s", i, title, who)
		}
	}
}

// TestProgramIsBuiltFromItsSource builds the program that is part of this one again.
func TestProgramIsBuiltFromItsSource(t *testing.T) {
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: any change of a package in the program changes its bytes; before a release: go generate ./cmd/starling-host/internal/verifier")
	}
	dir := t.TempDir()
	if said, err := exec.CommandContext(t.Context(), "./build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, name := range []string{"verifier.wasm.gz", "wasm_exec.js"} {
		kept, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		built, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if canon.Sum(kept) != canon.Sum(built) {
			t.Errorf("%s has the digest %v, and build.sh makes %v with %s", name, sandbox.Sum(kept), sandbox.Sum(built), runtime.Version())
		}
	}
}

// TestNodeEndsWithItsContext: a replay that is given up leaves no process.
func TestNodeEndsWithItsContext(t *testing.T) {
	node, err := verifier.NewNode(t.Context())
	if err != nil {
		t.Skipf("SKIPPED: %v: apt-get install nodejs", err)
	}
	defer node.Close()
	bundle := dice(t, nil)
	for _, give := range []bool{false, true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		if give {
			cancel()
		}
		v, err := starling.VerifyBundle(ctx, bundle, starling.BundleOptions{Execute: node.Replay})
		if give != (err != nil) || !give && !v.Identical() {
			t.Errorf("given up %v: %+v, %v", give, v, err)
		}
		cancel()
	}
}
