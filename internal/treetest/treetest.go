package treetest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Run runs the tests of a package in the root of the module.
func Run(m *testing.M) {
	for {
		if _, err := os.Stat("go.mod"); err == nil {
			break
		}
		if err := os.Chdir(".."); err != nil {
			panic(err)
		}
	}
	status := m.Run()
	_ = os.RemoveAll(hostDir)
	os.Exit(status)
}

// Read returns the text of a file.
func Read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FreePort returns a port of this machine that nobody listens at.
func FreePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Nginx returns a configuration of nginx, which runs in the foreground with its files in one folder, around
// servers.
func Nginx(servers string) string {
	text := "pid nginx.pid; error_log stderr; daemon off;\nevents {}\nhttp {\naccess_log off; client_body_temp_path body; proxy_temp_path proxy;\n" +
		"fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n" + servers + "}\n"
	if os.Getuid() == 0 {
		text = "user root;\n" + text
	}
	return text
}

// Write writes a file, and makes the folders that it is in.
func Write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hostDir is the folder of the program that the tests of a package share. [Run] removes it.
var hostDir string

var buildHost = sync.OnceValues(func() (program string, err error) {
	if hostDir, err = os.MkdirTemp("", "starling-host-"); err != nil {
		return "", err
	}
	program = filepath.Join(hostDir, "starling-host")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./cmd/starling-host").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
})

// BuildHost puts starling-host into a folder. It is built once for the tests of a package.
func BuildHost(t *testing.T, dir string) {
	t.Helper()
	program, err := buildHost()
	if err == nil {
		err = os.Symlink(program, filepath.Join(dir, "starling-host"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

const modulePath = "github.com/starling-host/starling"

// Outside returns a folder with a module that requires only this one and the SDK for Go.
func Outside(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const sdk = modulePath + "/guest-sdk/go"
	mod = bytes.Replace(mod, []byte("module "+modulePath+"\n"), fmt.Appendf(nil,
		"module example.com/outside\n\nrequire (\n\t%[1]s v0.0.0\n\t%[2]s v0.0.0\n)\n\nreplace (\n\t%[1]s => %[3]s\n\t%[2]s => %[3]s/guest-sdk/go\n)\n", modulePath, sdk, root), 1)
	for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const jsSDK = "guest-sdk/js"

// NeedsNPM skips the test unless Node is here, and what npm installs in a folder.
func NeedsNPM(t testing.TB, folder string) {
	t.Helper()
	Needs(t, "node")
	if _, err := os.Stat(filepath.Join(folder, "node_modules")); err != nil {
		t.Skipf("SKIPPED: packages of npm are missing (npm ci --prefix %s): %v", folder, err)
	}
}

// NeedsJS skips the test where Node, or what npm installs, is missing.
func NeedsJS(t *testing.T) {
	t.Helper()
	NeedsNPM(t, jsSDK)
	// Node reads these files, and go test must know that the result depends on them.
	for _, pattern := range []string{"*", "*/*.js", "*/*.mjs", "*/*.ts"} {
		files, _ := filepath.Glob(filepath.Join(jsSDK, pattern))
		for _, file := range files {
			_, _ = os.Stat(file)
		}
	}
}
