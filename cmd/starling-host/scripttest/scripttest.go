// Package scripttest runs the scripts of testdata, which specify the command line, with the
// program as a user has it. It is apart from the tests of package main because each of the two
// takes more than a minute.
package scripttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
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
// that only the first test that needs a module compiles it. Machine code is named by the digest of
// the module that it was compiled from: it stays where the user's is, for the next run of the tests.
// Go's own cache, which would be in that folder, stays in its place, too. The caller removes the
// folder.
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
	users := starling.CodeCacheFolder()
	os.Setenv("XDG_CACHE_HOME", dir)
	if own, table := starling.CodeCacheFolder(), fmt.Sprintf("cost-table-%d", sandbox.CostTableVersion); users != "" {
		users = filepath.Join(users, table)
		if err := errors.Join(os.MkdirAll(users, 0o700), os.MkdirAll(own, 0o700), os.Symlink(users, filepath.Join(own, table))); err != nil {
			fmt.Fprintln(os.Stderr, "modules are compiled anew:", err)
		}
	}
	return dir
}
