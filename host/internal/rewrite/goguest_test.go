package rewrite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// goGuest builds testdata/goguest, once per run of the tests.
func goGuest(t testing.TB) []byte { return goBuilt(t, buildGoGuest) }

func goBuilt(t testing.TB, build func() ([]byte, error)) []byte {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Skipf("SKIPPED: no Go toolchain that builds for wasip1: %v", err)
	}
	return b
}

var (
	buildGoGuest   = sync.OnceValues(func() ([]byte, error) { return buildGo("./testdata/goguest") })
	buildHTTPGuest = sync.OnceValues(func() ([]byte, error) { return buildGo("./testdata/httpguest") })
)

func buildGo(source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "goguest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, source)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return os.ReadFile(out)
}

// TestGoNetHTTP runs a tool that links the whole of net/http, some ten
// megabytes: it passes the gate and answers.
func TestGoNetHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: compiling ten megabytes takes seconds")
	}
	module := goBuilt(t, buildHTTPGuest)
	metered := mustRewrite(t, module, Options{})
	for _, h := range metered.Info.Counts.Headroom(DefaultLimits()) {
		t.Logf("%s: %d of %d", h.What, h.Value, h.Limit)
	}
	g := start(t, "compiler", metered)
	if _, err := g.ExportedFunction("_initialize").Call(context.Background()); err != nil {
		t.Fatal(err)
	}
	results, err := g.call("run", 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(3 * len(`{"path":"/tool"}`+"\n")); results[0] != want {
		t.Errorf("the answers have %d bytes, want %d", results[0], want)
	}
}
