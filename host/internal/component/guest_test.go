package component

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGuestIsBuiltFromItsSource builds the guest side again.
func TestGuestIsBuiltFromItsSource(t *testing.T) {
	version, err := exec.Command("clang", "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("Debian clang version 14.")) {
		t.Skipf("SKIPPED: guest.wasm is built with clang and lld of Debian 12: %v %s", err, version)
	}
	built := filepath.Join(t.TempDir(), "guest.wasm")
	if out, err := exec.Command("guest/build.sh", built).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, guestSide) {
		t.Error("guest.wasm is not what build.sh makes of its source")
	}
}

// TestParts: parts of a component give each other handles, and the wrong use of one ends the
// call. Expected is the output, or what the log says.
func TestParts(t *testing.T) {
	l := load(t, "parts")
	for what, want := range []string{
		`{"output":1070207}`,
		"component: unknown handle",
		"component: unknown handle",
		"component: unknown handle",
		"component: unknown handle",
		"component: a handle of another resource",
		`{"output":1165}`,
		"component: not a character",
		"component: a borrowed handle is not dropped",
	} {
		if got := l.call("run", `{"what":`+string(rune('0'+what))+`}`); !strings.Contains(got, want) {
			t.Errorf("%d: %s, want %s", what, got, want)
		}
	}
}

// TestPlugin calls a plug-in for Extism, whose host functions are the guest side's.
func TestPlugin(t *testing.T) {
	l := load(t, "plugin")
	l.world.http = func(request string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-B: 1\r\nX-B: 2\r\n\r\n" + request[len(request)-4:]
	}
	for _, c := range [][3]string{
		{"echo", `{"input":"gr\u00fcn"}`, `{"output":"grün"}`},
		{"echo", `{"a":[1,2],"input":"x"}`, `{"output":"{\"a\":[1,2],\"input\":\"x\"}"}`},
		{"copy", `{}`, `{"output":"{}"}`},
		{"team", `{}`, `{"error":{"kind":"tool","message":"no team"}}`},
		{"vars", `{}`, `{"output":"no team"}`},
		{"fetch", `{"input":"body"}`, `{"output":"body"}`},
		{"fails", `{}`, `{"error":{"kind":"tool","message":"the plug-in failed"}}`},
	} {
		if got := l.call(c[0], c[1]); got != c[2] {
			t.Errorf("%s(%s): %s, want %s", c[0], c[1], got, c[2])
		}
	}
}
