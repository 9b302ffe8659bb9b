package treetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programs are what tests use beside Go. A compiler is tried with its target, because it may be there
// without what its target needs.
var programs = map[string]struct {
	install string // what brings it
	try     func(dir string) *exec.Cmd
}{
	"bash":     {"bash", version("bash")},
	"c":        {"clang lld wasi-libc libclang-rt-dev-wasm32", compiles("clang --target=wasm32-wasi -o x.wasm x.c", "x.c", "#include <stdio.h>\nint main(void) { puts(\"x\"); }\n")},
	"c++":      {"clang lld", compiles("clang++ --target=wasm32-wasi -c -o x.o x.cc", "x.cc", "struct x { int y; } z;\n")},
	"chromium": {"chromium", version("chromium")},
	"curl":     {"curl", version("curl")},
	"etcd":     {"etcd-server", version("etcd")},
	"fish":     {"fish", version("fish")},
	"haproxy":  {"haproxy", func(string) *exec.Cmd { return exec.Command("haproxy", "-v") }},
	"mandoc":   {"mandoc", func(string) *exec.Cmd { return exec.Command("mandoc", "/dev/null") }},
	"netns":    {"iproute2, and root", func(string) *exec.Cmd { return exec.Command("unshare", "--net", "ip", "link") }},
	"nginx":    {"nginx-light", func(string) *exec.Cmd { return exec.Command("nginx", "-v") }},
	"node": {"nodejs npm", func(string) *exec.Cmd {
		return exec.Command("node", "-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)")
	}},
	"openssl":   {"openssl", func(string) *exec.Cmd { return exec.Command("openssl", "version") }},
	"patroni":   {"patroni python3-etcd", version("patroni")},
	"pgbouncer": {"pgbouncer", version("pgbouncer")},
	"python3":   {"python3", version("python3")},
	"rust":      {"rustc libstd-rust-dev-wasm32", compiles(anyRust, "x.rs", "pub fn x() -> String { String::new() }\n")},
	"strace":    {"strace", func(string) *exec.Cmd { return exec.Command("strace", "-qq", "-o", os.DevNull, "true") }},
	"symbolize": {"llvm", version("llvm-symbolizer")},
	"zsh":       {"zsh", version("zsh")},
}

// anyRust tries each rustc in PATH, as the host does: the first may lack the target.
const anyRust = `sh -c 'IFS=:; for dir in $PATH; do "$dir/rustc" --target=wasm32-unknown-unknown --crate-type=cdylib -o x.wasm x.rs && exit; done; exit 1'`

// version runs a program that prints its version.
func version(name string) func(string) *exec.Cmd {
	return func(string) *exec.Cmd { return exec.Command(name, "--version") }
}

// compiles runs a compiler on one file.
func compiles(command, name, text string) func(string) *exec.Cmd {
	return func(dir string) *exec.Cmd {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return exec.Command(err.Error())
		}
		return exec.Command("sh", "-c", "exec "+command)
	}
}

var tried sync.Map // of programs, by name: func() error

// Has returns an error if a program of the list is not here, or lacks what it needs. It tries each once.
func Has(name string) error {
	p, ok := programs[name]
	if !ok {
		return fmt.Errorf("no program is named %q: add it to internal/treetest/needs.go", name)
	}
	try, _ := tried.LoadOrStore(name, sync.OnceValue(func() error {
		dir, err := os.MkdirTemp("", "starling-needs-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cmd := p.try(dir)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s does not work (Debian: %s): %w\n%s", name, p.install, err, out)
		}
		return nil
	}))
	return try.(func() error)()
}

// Needs skips the test unless all of the programs are here.
func Needs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := Has(name); err != nil {
			if _, known := programs[name]; !known {
				t.Fatal(err)
			}
			t.Skipf("SKIPPED: %v", err)
		}
	}
}
