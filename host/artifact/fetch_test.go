package artifact

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRedirectInside: a public host leads nobody to an address that is not public. A host that has
// such an address may.
func TestRedirectInside(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://localhost:"+r.Host[strings.LastIndex(r.Host, ":")+1:]+"/", http.StatusFound)
		}
	}))
	defer server.Close()
	if answer, err := client(newBudget(t.Context()), "registry.example.com", true).Get(server.URL); err == nil || !strings.Contains(err.Error(), "is not followed: loopback") {
		t.Errorf("from a public host: %v, %v", answer, err)
	}
	answer, err := client(newBudget(t.Context()), "127.0.0.1", true).Get(server.URL + "/away")
	if err != nil || answer.Request.URL.Hostname() != "localhost" {
		t.Fatalf("from this machine: %v", err)
	}
	answer.Body.Close()
}

// TestNamesAsDockerTakesThem: a name that was copied from docker leads to the same tool, and a file's name stays one.
func TestNamesAsDockerTakesThem(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0f", 32)
	for ref, want := range map[string]string{
		"docker://ghcr.io/a/b:1":               "oci://ghcr.io/a/b:1",
		"docker://ghcr.io/a/b":                 "oci://ghcr.io/a/b",
		"ghcr.io/a/b:1":                        "oci://ghcr.io/a/b:1",
		"ghcr.io/a/b:1" + digest:               "oci://ghcr.io/a/b:1" + digest,
		"ghcr.io/a/b" + digest:                 "oci://ghcr.io/a/b" + digest,
		"registry.example.com:5000/tools/x:v2": "oci://registry.example.com:5000/tools/x:v2",
		"localhost:5000/x:1":                   "oci://localhost:5000/x:1",
		"oci://ghcr.io/a/b:1":                  "oci://ghcr.io/a/b:1",
		"ghcr.io/a/b":                          "ghcr.io/a/b", // a folder may be named so
		"tools/x:1":                            "tools/x:1",
		"./ghcr.io/a/b:1":                      "./ghcr.io/a/b:1",
		"dice.wasm":                            "dice.wasm",
		`C:\\tools\\dice.wasm`:                 `C:\\tools\\dice.wasm`,
	} {
		if got := full(ref); got != want {
			t.Errorf("%s: got %s, want %s", ref, got, want)
		}
		if got := IsRemote(ref); got != (want[:3] == "oci") {
			t.Errorf("%s is remote: %v", ref, got)
		}
	}
	for ref, want := range map[string]string{
		"ghcr.io/a/b": "did you mean oci://ghcr.io/a/b", "http://a.example/x.wasm": "starling-host mcp --server NAME=http://a.example/x.wasm", "tools/x": "want oci://REGISTRY",
	} {
		var wrong *Error
		if _, err := parse(ref); !errors.As(err, &wrong) || !strings.Contains(wrong.Hint, want) {
			t.Errorf("%s: %v, want the hint %q", ref, err, want)
		}
	}
}
