package verifier_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/verifier"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/agent"
)

const root = "../../../.."

// record makes runs in a database and returns the bundle of the last one, which is sealed if
// there is a key.
func record(t *testing.T, key *seal.Key, run func(ctx context.Context, db *starling.DB) error) seal.Bundle {
	t.Helper()
	db, err := starling.Open(t.Context(), filepath.Join(t.TempDir(), "starling.db"), starling.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := run(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if key != nil {
		if _, err := db.Seal(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	b, err := db.Bundle(t.Context(), starling.LastRun)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// call is a call of a tool. That it fails is no error: its run is recorded.
func call(ref, input string, o starling.ToolOptions) func(context.Context, *starling.DB) error {
	return func(ctx context.Context, db *starling.DB) error {
		program, err := db.Load(ctx, ref, o)
		if err == nil {
			_, err = program.Call(ctx, input)
		}
		if errors.As(err, new(*starling.CallError)) {
			err = nil
		}
		return err
	}
}

func bytesOf(t *testing.T, b seal.Bundle) []byte {
	t.Helper()
	file, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// dice is a bundle of a run of the tool dice.
func dice(t *testing.T, key *seal.Key) []byte {
	t.Helper()
	return bytesOf(t, record(t, key, call(root+"/tools-wasm/dice", `{}`, starling.ToolOptions{})))
}

// verdict waits for that of a page with a bundle, and returns it and all of the page's text.
func (b *browser) verdict(t *testing.T, bundle []byte) (title, text string) {
	t.Helper()
	page, err := verifier.Page(bundle, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if beside := len(page) - len(bundle)*4/3; beside > 5_800_000 {
		t.Errorf("the page has %d bytes beside the bundle", beside)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, page, 0o600); err != nil {
		t.Fatal(err)
	}
	b.open(t, "file://"+path)
	for range 1500 {
		switch title = b.value(`document.querySelector("h1")?.textContent`); title {
		case "<nil>", "Not verified", "Verifying …": // it is not there, its script has not begun, or is at work
		default:
			if b.value(`document.documentElement.scrollWidth > innerWidth`) != "false" {
				t.Error("the page is wider than its window")
			}
			return title, b.value(`document.querySelector("main").innerText`)
		}
		time.Sleep(100 * time.Millisecond) // only to ask less often
	}
	t.Fatalf("no verdict: %s", b.value(`document.body.innerText`))
	return "", ""
}

// kind is a bundle of a run of some kind, with the title and texts of its page.
type kind struct {
	bundle seal.Bundle
	title  string
	texts  []string
}

func kinds(t *testing.T) map[string]kind {
	t.Helper()
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"name":"Ada","plan":"pro"}`)) }))
	defer answers.Close()
	rolled := record(t, nil, call(root+"/tools-wasm/dice", `{}`, starling.ToolOptions{}))
	with := func(events []event.Event) seal.Bundle {
		return seal.Bundle{Runs: [][]event.Event{events}, Modules: rolled.Modules}
	}
	forged := slices.Clone(rolled.Runs[0])
	for i, e := range forged {
		if done, err := e.AsToolCallCompleted(); err == nil {
			done.Meter.Fuel++
			if forged[i].Payload, err = event.EncodePayload(done); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]kind{
		"dice":      {rolled, "Identical", []string{"The engine of your browser executed 1 run again", "The runs are not sealed", "ToolCallCompleted"}},
		"killed":    {with(rolled.Runs[0][:3]), "Identical", []string{"All 3 events of an open run match the recording", "open"}},
		"forged":    {with(logtest.Relink(forged)), "Differs from the recording", []string{"Diverged. At event ", "fuel", "The difference is marked below"}},
		"encrypted": {encrypted(t, rolled.Runs[0]), "Valid, not all executed", []string{"the run is encrypted, and a bundle has no keys"}},
		"deep":      {record(t, nil, call(root+"/spec/tck/modules/deep.wasm", `{}`, starling.ToolOptions{})), "Not decided here", []string{"neither confirmed nor refuted"}},
		"http": {record(t, nil, call(root+"/tools-wasm/customer-lookup", `{"id":"42","base_url":"`+answers.URL+`"}`,
			starling.ToolOptions{AllowHosts: []string{strings.TrimPrefix(answers.URL, "http://")}, AllowPrivate: true})),
			"Identical", []string{"GET " + answers.URL + "/customers/42 -> 200 OK", `"Ada"`}},
		"agent": {record(t, nil, func(ctx context.Context, db *starling.DB) error {
			gambler, err := db.OpenAgent(ctx, "../../demo/agent.yaml", starling.AgentOptions{})
			if err == nil {
				_, err = gambler.Run(ctx, "Roll two dice.")
			}
			return err
		}), "Identical", []string{"AssistantMessage", "read_file"}},
	}
}

// encrypted is the run as the log of a tenant keeps it.
func encrypted(t *testing.T, run []event.Event) seal.Bundle {
	t.Helper()
	inner := store.Memory()
	key, err := store.NewDataKey(make([]byte, store.DataKeySize))
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Encrypted(inner, key, "acme")
	if err != nil {
		t.Fatal(err)
	}
	run = slices.Clone(run)
	for i := range run {
		run[i].RunID = "acme/" + run[i].RunID
	}
	for _, e := range logtest.Relink(run) {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := inner.Read(t.Context(), run[0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	return seal.Bundle{Runs: [][]event.Event{stored}}
}

// TestPage opens pages of runs of all kinds in a browser, which executes them.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	b := newBrowser(t)
	for name, c := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			title, text := b.verdict(t, bytesOf(t, c.bundle))
			for _, want := range c.texts {
				if title != c.title || !strings.Contains(text, want) {
					t.Errorf("%s, want %q and %q\n%s", title, c.title, want, text)
				}
			}
			b.value(`document.querySelectorAll("details:not([open]) > summary").forEach((s) => s.click())`)
			inside := ""
			for range 300 { // rows are filled when they are opened
				if inside = b.value(`[...document.querySelectorAll(".inside")].map((e) => e.innerText).join()`); strings.Contains(inside, "hash ") {
					break
				}
				time.Sleep(10 * time.Millisecond) // only to ask less often
			}
			if !strings.Contains(inside, "payload") || name == "http" && !strings.Contains(inside, "Accept: application/json\n") {
				t.Errorf("inside of the rows there is %s", inside)
			}
			if name == "forged" && b.value(`document.querySelectorAll(".here").length`) != "1" {
				t.Error("the event that differs is not marked")
			}
			if dir := os.Getenv("STARLING_SCREENSHOTS"); dir != "" {
				b.shot(filepath.Join(dir, name+".png"))
			}
		})
	}
}

// said is the verdict on the run of a bundle, in words, and where it differs.
func said(v starling.BundleVerdict) any {
	return []any{strings.Replace(v.Runs[0].String(), " event: ", " ", 1), v.Runs[0].Document().Divergence}
}

// TestNode has Node verify the same bundles: with its larger stack all is as it is here.
func TestNode(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	treetest.Needs(t, "node")
	node, err := verifier.NewNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for name, c := range kinds(t) {
		file := bytesOf(t, c.bundle)
		there, err := starling.VerifyBundle(t.Context(), file, starling.BundleOptions{Execute: node.Replay})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		here, err := starling.VerifyBundle(t.Context(), file, starling.BundleOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(said(here), said(there)); d != "" {
			t.Errorf("%s: here and in Node: %s", name, d)
		}
		if name != "deep" {
			continue
		}
		small, err := starling.VerifyBundle(t.Context(), file, starling.BundleOptions{Engine: starling.EngineOptions{Kind: starling.Interpreter}})
		if err != nil || small.Document().Verdict != agent.NotDecided {
			t.Errorf("%s, by an engine with a small stack: %+v, %v", name, small.Document(), err)
		}
	}
}

// TestPageChecksTheSignature: a bundle that was changed is invalid, and a signature counts if
// the reader gives the key.
func TestPageChecksTheSignature(t *testing.T) {
	var keys [2]*seal.Key
	for i := range keys {
		var err error
		if keys[i], err = seal.NewKey("example.com/runs"); err != nil {
			t.Fatal(err)
		}
	}
	b, bundle := newBrowser(t), dice(t, keys[0])
	changed := bytes.Replace(bundle, []byte("ToolCallCompleted"), []byte("ToolCallCompletee"), 1)
	if title, text := b.verdict(t, changed); title != "Invalid" || !strings.Contains(text, "runs.ndjson") {
		t.Errorf("%s\n%s", title, text)
	}
	title, text := b.verdict(t, bundle)
	if style := b.value(`document.getElementById("verdict").className`); style != "mid" {
		t.Errorf("before a signature is checked the verdict is %q", style)
	}
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
		if title := b.value(`document.querySelector("h1").textContent`); !strings.Contains(who, want) || (title == "Identical") != (i == 0) || i == 1 && strings.Contains(who, "Signed by") {
			t.Errorf("key %d: %s: %s", i, title, who)
		}
	}
}

// TestLargePages reads a page whose bundle unpacks to a thousand times its size, and makes one that could
// not be read.
func TestLargePages(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	zeros := make([]byte, 1<<20)
	for range 64 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	page := []byte(`<script id="bundle">` + base64.StdEncoding.EncodeToString(packed.Bytes()) + "</script>")
	if _, err := verifier.Bundle(t.Context(), page); !errors.Is(err, work.ErrExceeded) {
		t.Error(err)
	}
	if _, err := verifier.Page(make([]byte, 256<<20), "v1"); err == nil || !strings.Contains(err.Error(), "too large for a page") {
		t.Error("a page is written that cannot be read:", err)
	}
}

// TestChangedPages changes bytes of a page that a browser then opens: it says at once that
// nothing is verified, or what is wrong, and nothing that was changed is identical.
func TestChangedPages(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	b, bundle := newBrowser(t), bytesOf(t, record(t, nil, call(root+"/spec/tck/modules/echo.wasm", `{}`, starling.ToolOptions{})))
	page, err := verifier.Page(bundle, "v1")
	if err != nil {
		t.Fatal(err)
	}
	n := 2
	if os.Getenv("STARLING_NIGHTLY") != "" {
		n = 25
	}
	random := rand.New(rand.NewPCG(1, 2))
	path, slowest := filepath.Join(t.TempDir(), "page.html"), time.Duration(0)
	for _, part := range []string{`id="glue">`, `id="inworker">`, `id="program">`, `id="bundle">`, "\n<script>"} {
		_, content, _ := bytes.Cut(page, []byte(part))
		content, _, _ = bytes.Cut(content, []byte("</script>"))
		for range n {
			changed := bytes.Clone(page)
			place := cap(page) - cap(content) + random.IntN(len(content))
			changed[place] ^= byte(1 + random.IntN(15))
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			b.open(t, "file://"+path)
			title := ""
			for range 600 {
				title = b.value(`document.readyState == "complete" && document.querySelector("h1")?.textContent`)
				if title != "false" && title != "<nil>" && title != "Verifying …" {
					break
				}
				time.Sleep(20 * time.Millisecond) // only to ask less often
			}
			slowest = max(slowest, time.Since(began))
			if title != "Not verified" && title != "Invalid" {
				t.Errorf("byte %d, in %s, was %q and is %q: %s: %s", place, part, page[place], changed[place], title, b.value(`document.querySelector("main").innerText`))
			}
		}
	}
	t.Logf("the slowest answer took %v", slowest)
}

// TestProgramIsBuiltFromItsSource builds the program that is part of this one again. Its packages must build
// for a browser after each change. The bytes are compared at night alone: any change of such a package changes
// them; before a release: go generate ./cmd/starling-host/internal/verifier.
func TestProgramIsBuiltFromItsSource(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes a minute")
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
		if os.Getenv("STARLING_NIGHTLY") != "" && canon.Sum(kept) != canon.Sum(built) {
			t.Errorf("%s has the digest %v, and build.sh makes %v with %s", name, sandbox.Sum(kept), sandbox.Sum(built), runtime.Version())
		}
	}
}

// TestNodeEndsWithItsContext: a replay that is given up leaves no process.
func TestNodeEndsWithItsContext(t *testing.T) {
	treetest.Needs(t, "node")
	node, err := verifier.NewNode(t.Context())
	if err != nil {
		t.Fatal(err)
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
