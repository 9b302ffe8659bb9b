package guestsdk_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/runtime/tool"
)

func TestMain(m *testing.M) { treetest.Run(m) }

const (
	goSDK     = "guest-sdk/go"
	goArchive = "guest-sdk/go.zip"
)

// maxMinimal is the size that doc.go promises for a tool that uses this package alone.
const maxMinimal = 2_000_000

var update = flag.Bool("update", false, "write guest-sdk/go.zip")

// TestGoArchive checks that go.zip, which the program carries, has the files of the SDK that a
// tool needs, below sdk, and the template of a tool, below template.
func TestGoArchive(t *testing.T) {
	listed, err := exec.Command("git", "ls-files", "-z", goSDK).Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	want := map[string][]byte{"sdk/LICENSE": []byte(treetest.Read(t, "LICENSE"))}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		name := strings.TrimPrefix(path, goSDK+"/")
		switch first, _, _ := strings.Cut(name, "/"); {
		case first == "template":
		case first == "testdata" || first == "examples" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md"):
			continue
		default:
			name = "sdk/" + name
		}
		want[name] = []byte(treetest.Read(t, path))
	}
	if *update {
		var packed bytes.Buffer
		w := zip.NewWriter(&packed)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
			if err == nil {
				_, err = f.Write(want[name])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), os.WriteFile(goArchive, packed.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := zip.OpenReader(goArchive)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	got := map[string][]byte{}
	for _, f := range archive.File {
		if got[f.Name], err = fs.ReadFile(archive, f.Name); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("write it again: go test ./guest-sdk -run TestGoArchive -update\n%s", diff)
	}
}

// TestGoSDKHasNoDependencies: a tool builds without a network, the schemas of the SDK are those of
// the host, and its README shows its example.
func TestGoSDKHasNoDependencies(t *testing.T) {
	if mod := treetest.Read(t, goSDK+"/go.mod"); strings.Contains(mod, "require") {
		t.Errorf("guest-sdk/go/go.mod has requirements:\n%s", mod)
	}
	_, shown, _ := strings.Cut(treetest.Read(t, goSDK+"/examples/lookup/main.go"), "\nfunc lookup(")
	if !strings.Contains(treetest.Read(t, goSDK+"/README.md"), "\nfunc lookup("+shown+"```\n") {
		t.Error("guest-sdk/go/README.md shows another tool than examples/lookup")
	}
	files, err := filepath.Glob("internal/schema/*.go")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") && treetest.Read(t, file) != treetest.Read(t, goSDK+"/"+file) {
			t.Errorf("%s and guest-sdk/go/%[1]s differ: change the first and copy it", file)
		}
	}
}

func build(t *testing.T, dir string) []byte {
	t.Helper()
	m, err := guest.Find(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return m.Wasm
}

func check(t *testing.T, wasm []byte) sandbox.GateInfo {
	t.Helper()
	info, err := sandbox.Check(t.Context(), wasm, sandbox.DefaultGateLimits())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestMinimalModuleIsSmallAndAsksForNothing: the import section of a module
// lists its abilities, so a tool without host calls imports nothing.
func TestMinimalModuleIsSmallAndAsksForNothing(t *testing.T) {
	wasm := build(t, "guest-sdk/go/testdata/minimal")
	if len(wasm) >= maxMinimal {
		t.Errorf("%d bytes, the limit is %d", len(wasm), maxMinimal)
	}
	info := check(t, wasm)
	for _, i := range info.Imports {
		if i.Module != abi.WASIModule {
			t.Errorf("imports %s %s", i.Module, i.Name)
		}
	}
	want := []string{abi.ExportInitialize, abi.ExportMemory, abi.ExportAlloc, abi.ExportDescribe, abi.ExportExecute}
	var got []string
	for _, e := range info.Exports {
		got = append(got, e.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// goWorld is the outside of a module under test.
type goWorld struct {
	requests []string
	took     time.Duration // by each exchange
	answer   func(request string) (string, abi.Status)
}

func (*goWorld) Now(context.Context) int64     { return 1_767_323_045_000_000_007 }
func (*goWorld) Random(context.Context) uint64 { return 1<<63 + 5 }
func (*goWorld) Seed(context.Context) [32]byte { return [32]byte{1} }
func (w *goWorld) HTTP(_ context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	w.requests = append(w.requests, string(request))
	answer, status := w.answer(string(request))
	return []byte(answer), status, w.took
}

func load(t *testing.T, dir string, c sandbox.Config) *sandbox.Module {
	t.Helper()
	engine, err := sandbox.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	m, err := engine.Load(t.Context(), build(t, dir), sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func call(t *testing.T, m *sandbox.Module, w *goWorld, tool, input string) (string, error) {
	t.Helper()
	envelope := `{"tool":"` + tool + `","input":` + input + `,"context":{"run_id":"r","call_id":"c","attempt":3}}`
	got, err := m.Call(t.Context(), sandbox.Call{Tool: tool, Input: []byte(envelope)}, w)
	return string(got.Output), err
}

func TestGoModule(t *testing.T) {
	m := load(t, "guest-sdk/go/testdata/probe", sandbox.Config{})
	if doc, err := m.Describe(t.Context()); err != nil || !strings.HasPrefix(string(doc), `{"tools":[{"name":"world",`) {
		t.Errorf("describe: %s %v", doc, err)
	}
	ok := func(string) (string, abi.Status) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), 0
	}
	denied := func(string) (string, abi.Status) { return "no rule allows h", abi.StatusDenied }
	list := "[" + strings.Repeat(`"0123456789",`, 50_000) + "1]"
	for _, c := range []struct {
		name   string
		answer func(string) (string, abi.Status)
		tool   string
		input  string
		want   string
	}{
		{"all host calls", ok, "world", `{"url":"http://h/"}`, `{"output":{"now":1767323045000000007,"random":9223372036854775813,"status":200,"body":100000,"wasi_now":"2026-01-02T03:04:05Z","wasi_rand":true,"call":"r c 3"}}`},
		{"a denial", denied, "world", `{"url":"http://h/"}`, `{"error":{"kind":"cancel","message":"http: denied: no rule allows h"}}`},
		{"a transient failure", nil, "fail", `{"How":"transient"}`, `{"error":{"kind":"transient","message":"later"}}`},
		{"an input under the collector", nil, "garbage", list, `{"output":` + list + `}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &goWorld{answer: c.answer}
			got, err := call(t, m, w, c.tool, c.input)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got  %.300s\nwant %.300s", got, c.want)
			}
			if c.answer != nil && !strings.HasPrefix(w.requests[0], "GET http://h/ HTTP/1.1\r\nStarling-Effect: probe\r\nHost: h\r\n") {
				t.Errorf("request %q", w.requests[0])
			}
			again, err := call(t, m, &goWorld{answer: c.answer}, c.tool, c.input)
			if err != nil || again != got {
				t.Errorf("the same call again: %.300s %v", again, err)
			}
		})
	}
	if _, err := call(t, m, &goWorld{}, "fail", `{"How":"panic"}`); !errors.Is(err, tool.ErrPanicked) {
		t.Errorf("a panic: %v", err)
	}
}

// TestGoMeasuresExchanges: an exchange takes its recorded time on every clock of a tool, and timers
// that are due before its end fire first, on all engines.
func TestGoMeasuresExchanges(t *testing.T) {
	for name, c := range map[string]sandbox.Config{"compiler": {}, "machine": {Machine: true}, "interpreter": {Interpreter: true}} {
		t.Run(name, func(t *testing.T) {
			m := load(t, "guest-sdk/go/testdata/probe", c)
			for _, took := range []time.Duration{0, 3 * time.Second, 90 * time.Second} {
				first, last, ctx := "exchange", "exchange", ""
				if took > time.Second {
					first, ctx = "timer", "context deadline exceeded"
				}
				if took > time.Minute {
					last = "timer"
				}
				w := &goWorld{took: took, answer: func(string) (string, abi.Status) { return "HTTP/1.1 204 No Content\r\n\r\n", 0 }}
				want := fmt.Sprintf(`{"output":{"TookMs":%[1]d,"RealtimeMs":%[1]d,"First":%[2]q,"Context":%[3]q,"BeforeItsEnd":%[4]q}}`, took.Milliseconds(), first, ctx, last)
				if got, err := call(t, m, w, "latency", `{"url":"http://h/"}`); err != nil || got != want {
					t.Errorf("got %s (%v)\nwant %s", got, err, want)
				}
			}
		})
	}
}

// TestOrdinaryClientsRun runs an http.Client on the machine, which is ready
// at once where the compiler needs ten seconds for ten megabytes. The timeout of
// that client is five seconds.
func TestOrdinaryClientsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	m := load(t, "guest-sdk/go/testdata/nethttp", sandbox.Config{Machine: true})
	const late = `{"error":{"kind":"tool","message":"Get \"http://h/new\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"}}`
	for _, c := range []struct {
		name  string
		input string
		took  time.Duration // the second exchange
		want  string
	}{
		{"in time", `{"URL":"http://h/old"}`, 4 * time.Second, `{"output":"http://h/new hi"}`},
		{"too late", `{"URL":"http://h/old"}`, 6 * time.Second, late},
		{"too late, by a clock that is ahead", `{"URL":"http://h/old","WaitMs":60000}`, 6 * time.Second, late},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &goWorld{}
			w.answer = func(request string) (string, abi.Status) {
				if strings.HasPrefix(request, "GET http://h/old ") {
					return "HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n", 0
				}
				w.took = c.took
				return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0
			}
			got, err := call(t, m, w, "get", c.input)
			if err != nil || got != c.want || len(w.requests) != 2 {
				t.Errorf("got %s %v after %d requests", got, err, len(w.requests))
			}
		})
	}
}
