package starling_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/starling-host/starling"

// line is the order of the folders; starling is the root package. A package imports its
// own folder and folders further down, so a reader needs nothing from above it.
var line = []string{"cmd", "serve", "starling", "host", "runtime", "eventlog", "abi", "internal", "spec", "guest-sdk"}

// shared are packages that several folders need and no program outside: Go lets these folders import a package
// only below the internal/ of the root. Each has its place in the line with the folder that it belongs to.
var shared = map[string]string{
	"internal/config": "runtime", "internal/search": "eventlog", "internal/workspace": "eventlog", "internal/workspace/folder": "eventlog",
}

// folders are the other folders that may stand at the top. Go code there is an example, or a
// module of its own.
var folders = []string{"bench", "docs", "examples", "release", "tools-wasm"}

// importers are the packages that may import a third-party module. All other packages
// use what they export.
var importers = map[string][]string{
	"github.com/tetratelabs/wazero":                     {"host/sandbox"},
	"github.com/fxamacker/cbor/v2":                      {"eventlog/canon"},
	"github.com/x448/float16":                           {"eventlog/canon"},
	"lukechampine.com/blake3":                           {"eventlog/canon", "host/internal/cachefile", "host/sandbox"},
	"modernc.org/sqlite":                                {"eventlog/internal/sqlitelog"},
	"github.com/jackc/pgx/v5":                           {"eventlog/internal/pglog"},
	"github.com/oklog/ulid/v2":                          {"eventlog/event"},
	"github.com/goccy/go-yaml":                          {"internal/config"},
	"github.com/santhosh-tekuri/jsonschema/v6":          {"runtime/internal/validate"},
	"github.com/BurntSushi/toml":                        {"host/internal/registry"},
	"github.com/spf13/cobra":                            {"cmd/starling-host"},
	"github.com/spf13/pflag":                            {"cmd/starling-host"}, // cobra's own
	"github.com/schollz/progressbar/v3":                 {"cmd/starling-host"},
	"golang.org/x/text":                                 {"runtime/internal/validate", "host/policy", "internal/display"}, // the printer that jsonschema words its errors with; what servers normalise a path to; how wide a character is
	"golang.org/x/term":                                 {"cmd/starling-host", "internal/terminal", "host/debug"},
	"golang.org/x/time":                                 {"serve/internal/daemon"},
	"golang.org/x/sync":                                 {"host/sandbox"}, // a lock whose wait ends with a context
	"golang.org/x/mod":                                  {"eventlog/seal", "internal/witnesstest"},
	"github.com/klauspost/compress":                     {"internal/zstd"},
	"golang.org/x/tools":                                {"cmd/starling-host/internal/toolcase"}, // its archives of text
	"golang.org/x/sys":                                  {"eventlog/internal/sqlitelog", "internal/keyfile", "host/sandbox/internal/image", "host/internal/jail"},
	"github.com/evanw/esbuild":                          {"host/internal/registry"},
	"github.com/google/pprof":                           {"internal/profile"},
	"github.com/google/go-dap":                          {"cmd/starling-host/internal/dap"},
	"github.com/prometheus/client_golang":               {"runtime/observe"},
	"go.opentelemetry.io/otel":                          {"runtime/observe"},
	"go.opentelemetry.io/otel/trace":                    {"runtime/observe"},
	"go.opentelemetry.io/otel/sdk":                      {"serve"},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace": {"serve"},
	"go.opentelemetry.io/proto/otlp":                    {"serve"},
	"google.golang.org/protobuf":                        {"serve"},
	"github.com/modelcontextprotocol/go-sdk":            {"serve/internal/mcpsrv", "runtime/mcptool"},
	"oras.land/oras-go/v2":                              {"host/artifact"},
	"github.com/opencontainers/image-spec":              {"host/artifact"},
	"github.com/opencontainers/go-digest":               {"host/artifact"},
	"golang.org/x/oauth2":                               {"runtime/mcptool"},
	"github.com/rogpeppe/go-internal":                   {"internal/display"},
}

// testOnly may be imported by tests alone: by test files, and by the packages
// that exist for tests, whose names end in "test".
var testOnly = []string{
	"github.com/google/go-cmp", "pgregory.net/rapid", "github.com/ncruces/go-sqlite3", "golang.org/x/net", "github.com/getkin/kin-openapi",
	"github.com/google/go-containerregistry",
}

type goPackage struct {
	ImportPath, Name                   string
	GoFiles                            []string
	Standard                           bool
	Imports, TestImports, XTestImports []string
	Module                             *struct{ Path string }
}

// listPackages returns the packages of the module in a folder and, by import path,
// everything that they need.
func listPackages(t *testing.T, folder string) (own []goPackage, all map[string]goPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-C", folder, "-deps", "-test", "-json=ImportPath,Name,GoFiles,Standard,Imports,TestImports,XTestImports,Module", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all = map[string]goPackage{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return own, all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
		generated := strings.ContainsAny(p.ImportPath, " ") || strings.HasSuffix(p.ImportPath, ".test")
		if !generated && (p.ImportPath == modulePath || strings.HasPrefix(p.ImportPath, modulePath+"/")) {
			own = append(own, p)
		}
	}
}

// local returns an import's path below the module, and whether it is ours.
// The root package is "starling".
func local(importPath string) (string, bool) {
	if importPath == modulePath {
		return "starling", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// place returns the folder of [line] that a package counts as.
func place(dir string) string { return cmp.Or(shared[dir], top(dir)) }

// TestImportLine checks that the tree is one straight line, and that only tests use the
// packages that are for tests.
func TestImportLine(t *testing.T) {
	own, _ := listPackages(t, ".")
	for _, p := range own {
		from, ok := local(p.ImportPath)
		if !ok {
			continue
		}
		for _, imported := range p.Imports {
			to, ours := local(imported)
			kit := top(from) == "internal" && strings.HasSuffix(from, "test") // stands beside the line
			if ours && strings.HasSuffix(to, "test") && !strings.HasSuffix(from, "test") {
				t.Errorf("%s imports %s, which is for tests", from, to)
			}
			if ours && !kit && !mayImport(place(from), place(to)) {
				t.Errorf("%s imports %s: imports go %s", from, to, strings.Join(line, " -> "))
			}
		}
	}
}

func mayImport(from, to string) bool {
	if from == "examples" {
		return true // an example is a user of all of it
	}
	i, j := slices.Index(line, from), slices.Index(line, to)
	return i >= 0 && j >= i
}

// TestSandboxStandsAlone checks that the sandbox can be used, and read, without the log
// and the tool runtime. It names files as the log does, with canon.
func TestSandboxStandsAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./host/sandbox").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if dir, ours := local(dep); ours && dir != "eventlog/canon" && (top(dir) == "eventlog" || top(dir) == "runtime") {
			t.Errorf("host/sandbox depends on %s", dir)
		}
	}
}

// TestThirdPartyImporters checks that each third-party module is imported only by the
// packages that layout_test.go names.
func TestThirdPartyImporters(t *testing.T) {
	own, all := listPackages(t, ".")
	for _, p := range own {
		from, _ := local(p.ImportPath)
		for _, imported := range p.Imports {
			dep := all[imported]
			if dep.Standard || dep.Module == nil || dep.Module.Path == modulePath {
				continue
			}
			allowed, known := importers[dep.Module.Path]
			switch {
			case slices.Contains(testOnly, dep.Module.Path):
				if strings.HasSuffix(from, "test") {
					continue
				}
				t.Errorf("%s imports %s, which is for tests", from, imported)
			case !known:
				t.Errorf("%s imports %s, which has no importer in layout_test.go", from, imported)
			case !slices.Contains(allowed, from):
				t.Errorf("%s imports %s: its importer is %s", from, imported, strings.Join(allowed, ", "))
			}
		}
	}
}

// operators are the packages whose destinations the operator names, in a
// configuration that no tool and no model can change.
var operators = []string{
	"runtime/provider", "runtime/internal/converse", "runtime/internal/anthropic", "runtime/internal/bedrock",
	"runtime/internal/gemini", "runtime/internal/openai", "runtime/mcptool",
	"host/artifact", // the names of tools: a person's, or an agent's file's
}

// servers are the packages that answer over HTTP. What they ask, they ask of addresses in
// their configuration: a host asks its witnesses.
var servers = []string{"serve", "runtime/observe"}

// TestEgressIsTheOnlyHTTPClient checks that where untrusted code chooses the
// destination, nothing but the egress client links Go's HTTP client.
func TestEgressIsTheOnlyHTTPClient(t *testing.T) {
	own, _ := listPackages(t, ".")
	for _, p := range own {
		from, _ := local(p.ImportPath)
		server := slices.ContainsFunc(servers, func(dir string) bool { return from == dir || strings.HasPrefix(from, dir+"/") })
		operator := slices.ContainsFunc(operators, func(dir string) bool { return from == dir || strings.HasPrefix(from, dir+"/") })
		kit := strings.HasSuffix(from, "test") // servers that tests call: TestImportLine keeps them out of programs
		if !operator && !server && !kit && from != "runtime/egress" && slices.Contains(p.Imports, "net/http") {
			t.Errorf("%s imports net/http: the network is behind runtime/egress", from)
		}
	}
}

// TestTopLevelFolders checks that nothing stands beside the line unnamed.
func TestTopLevelFolders(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || strings.HasPrefix(name, ".") || slices.Contains(line, name) || slices.Contains(folders, name) {
			continue
		}
		t.Errorf("folder %s/ has no place in the map", name)
	}
}

// TestPackageStories checks that every package tells its story: in doc.go, or
// at the top of its only file.
func TestPackageStories(t *testing.T) {
	own, _ := listPackages(t, ".")
	sdk, _ := listPackages(t, "guest-sdk/go")
	overview, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(own, sdk...) {
		dir, ok := local(p.ImportPath)
		if !ok || p.Name == "main" || len(p.GoFiles) == 0 {
			continue // a program's story is its help text, and a folder of tests has none
		}
		public := !strings.HasSuffix(dir, "test") && !slices.Contains(strings.Split(dir, "/"), "internal") && !strings.HasPrefix(dir, "guest-sdk/")
		if public && !bytes.Contains(overview, []byte("`"+dir+"`")) {
			t.Errorf("docs/architecture.md does not say what a program imports %s for", dir)
		}
		if p.ImportPath == modulePath {
			dir = "."
		}
		file := "doc.go"
		if len(p.GoFiles) == 1 {
			file = p.GoFiles[0]
		}
		text, err := os.ReadFile(filepath.FromSlash(path.Join(dir, file)))
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has several files and no doc.go", dir)
		} else if err == nil && !bytes.Contains(text, []byte("// Package "+p.Name+" ")) {
			t.Errorf("%s does not hold the comment of package %s", path.Join(dir, file), p.Name)
		}
	}
}

// TestPublicPackagesHaveExamples checks that every package that others can import shows how
// in an Example that runs. Kits for tests are shown by the tests that use them.
func TestPublicPackagesHaveExamples(t *testing.T) {
	own, _ := listPackages(t, ".")
	sdk, _ := listPackages(t, "guest-sdk/go")
	for _, p := range append(own, sdk...) {
		dir, _ := local(p.ImportPath)
		if p.Name == "main" || len(p.GoFiles) == 0 || strings.HasSuffix(dir, "test") || slices.Contains(strings.Split(dir, "/"), "internal") {
			continue
		}
		if p.ImportPath == modulePath {
			dir = "."
		}
		runs := false
		tests, err := filepath.Glob(filepath.Join(filepath.FromSlash(dir), "*_test.go"))
		for _, file := range tests {
			var text []byte
			if text, err = os.ReadFile(file); err != nil {
				break
			}
			runs = runs || bytes.Contains(text, []byte("\nfunc Example")) && bytes.Contains(text, []byte("\t// Output:"))
		}
		if err != nil || !runs {
			t.Errorf("package %s has no Example that runs: %v", dir, err)
		}
	}
}

// openers are the files that open a path without [keyfile.Open], and why they may. A path that a
// user or a folder names can lead to a pipe, which blocks, or to a device, which does not end.
var openers = map[string]string{
	"internal/keyfile":                  "the reader itself, keys and locks",
	"eventlog/internal/sqlitelog":       "the files of the database, and locks beside it",
	"host/sandbox":                      "the host's own cache",
	"host/sandbox/internal/image":       "/proc",
	"host/internal/jail":                "/proc",
	"host/internal/program":             "this program",
	"host/internal/cachefile":           "the host's own cache, and only regular files",
	"release":                           "files of the tree",
	"cmd/starling-host/archive.go":      "an archive may be a pipe: it is read line by line",
	"cmd/starling-host/run.go":          "an input may be a pipe: it has a limit",
	"cmd/starling-host/demo.go":         "creates files",
	"cmd/starling-host/replay.go":       "creates a profile, in place of an older one",
	"host/internal/machine/generate.go": "not in the program",
}

// TestFilesAreOpenedByOneReader walks the program for calls that open files.
func TestFilesAreOpenedByOneReader(t *testing.T) {
	used := map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		slashed := filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(append(folders, "guest-sdk"), slashed) && slashed != "release" || d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasSuffix(d.Name(), "test")):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"ReadFile", "Open", "OpenFile"}, call.Sel.Name) {
				return true
			}
			if of, ok := call.X.(*ast.Ident); !ok || of.Name != "os" {
				return true
			}
			for _, place := range []string{slashed, path.Dir(slashed)} {
				if openers[place] != "" {
					used[place] = true
					return true
				}
			}
			t.Errorf("%s opens a file with os.%s; use keyfile.Open or keyfile.ReadFile, or say in openers why not", slashed, call.Sel.Name)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for place := range openers {
		if !used[place] {
			t.Errorf("%s opens no file, so it has no place in openers", place)
		}
	}
}
