// Package scripttest runs the scripts of testdata, which specify the command line, with the
// program as a user has it. It is apart from the tests of package main because each of the two
// takes more than a minute.
package scripttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/guest"
)

// Run runs the tests of a package with the program in PATH and the folder of [Cache].
func Run(m *testing.M) {
	guest.WorkerMain()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir := Cache()
	defer os.RemoveAll(dir)
	const program = "github.com/starling-host/starling/cmd/starling-host"
	if out, err := exec.Command("go", "build", "-o", dir+"/bin/", program).CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	os.Setenv("PATH", filepath.Join(dir, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return m.Run()
}

// Cache creates a folder in which this process and its children keep built and compiled code, so
// that only the first test that needs a module compiles it. Go's own cache, which would be in that
// folder, stays in its place. The caller removes the folder.
func Cache() string {
	dir, err := os.MkdirTemp("", "starling-host")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			panic(err)
		}
		os.Setenv(name, strings.TrimSpace(string(value)))
	}
	os.Setenv("XDG_CACHE_HOME", dir)
	return dir
}
