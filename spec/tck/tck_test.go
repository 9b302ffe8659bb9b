// Package tck_test runs the conformance kit against this host and both SDKs.
package tck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/treetest"
)

func TestMain(m *testing.M) { treetest.Run(m) }

// kit runs the conformance kit, spec/tck, and checks that all cases pass.
func kit(t *testing.T, env []string, args ...string) {
	t.Helper()
	// Node reads these files, and go test must know that the result depends on them.
	for _, pattern := range []string{"spec/tck/*", "spec/tck/*/*", "spec/checker/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			_, _ = os.Stat(file)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"spec/tck/run.mjs"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), " passed, 0 failed\n") {
		t.Errorf("node spec/tck/run.mjs %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func needsNode(t *testing.T) {
	t.Helper()
	treetest.Needs(t, "node")
}

// TestConformanceOfTheHost runs the kit against the program: by day the cases that replay a
// run, and at night all of them.
func TestConformanceOfTheHost(t *testing.T) {
	needsNode(t)
	if testing.Short() {
		t.Skip("SKIPPED: starts the program 200 times")
	}
	t.Parallel()
	dir := t.TempDir()
	treetest.BuildHost(t, dir)
	args := []string{"node", "spec/tck/starling-host.mjs"}
	if os.Getenv("STARLING_NIGHTLY") == "" {
		args = append([]string{"--only", "replay "}, args...)
	}
	kit(t, []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH"), "XDG_CACHE_HOME=" + dir}, args...)
}

// TestConformanceOfSDKs runs the kit against modules that are built with them.
func TestConformanceOfSDKs(t *testing.T) {
	needsNode(t)
	for language, source := range map[string]string{"Go": "guest-sdk/go/testdata/conformance", "Python": "guest-sdk/python/testdata/conformance.py"} {
		t.Run(language, func(t *testing.T) {
			module, err := guest.Find(t.Context(), source)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "conformance.wasm")
			if err := os.WriteFile(file, module.Wasm, 0o600); err != nil {
				t.Fatal(err)
			}
			kit(t, nil, "sdk", file)
		})
	}
}

// TestConformanceOfTheJavaScriptSDK does the same with the other SDK, and checks that the
// golden modules of the kit are what their source says.
func TestConformanceOfTheJavaScriptSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	treetest.NeedsJS(t)
	module, err := guest.Find(t.Context(), "guest-sdk/js/testdata/conformance.js")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "conformance.wasm")
	if err := os.WriteFile(file, module.Wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	kit(t, nil, "sdk", file)
	if out, err := exec.CommandContext(t.Context(), "node", "spec/tck/modules/build.mjs", "--check").CombinedOutput(); err != nil {
		t.Errorf("node spec/tck/modules/build.mjs --check: %v\n%s", err, out)
	}
}

// TestConformanceOfTheNativeSDKs does the same with the SDKs whose tools a compiler builds.
func TestConformanceOfTheNativeSDKs(t *testing.T) {
	needsNode(t)
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	for _, language := range treetest.Native {
		t.Run(language.Name, func(t *testing.T) {
			language.Needs(t)
			module, err := guest.Find(t.Context(), language.Folder(t, "testdata/conformance"))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "conformance.wasm")
			if err := os.WriteFile(file, module.Wasm, 0o600); err != nil {
				t.Fatal(err)
			}
			kit(t, nil, "sdk", file)
		})
	}
}
