package starling_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// lenient are the places that check a run without the strict rules, in the form file: function, and why.
var lenient = map[string]string{
	"eventlog/check.go: Validate":             "it is the check without the strict rules, by its name",
	"runtime/agent/resume.go: openRun":        "it continues runs of the Starling runtime, which keep the invariants alone",
	"runtime/agent/verdict.go: checkRecorded": "it replays runs of the Starling runtime, which keep the invariants alone",
}

// TestChecksAreStrict walks the product for what makes options of a check. Each says Strict, or is in the
// list with its reason.
func TestChecksAreStrict(t *testing.T) {
	met, strict := map[string]bool{}, 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasSuffix(d.Name(), "test") || slices.Contains([]string{"testdata", "node_modules", "guest-sdk", "bench", "examples", "tools-wasm"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			place := path + ": the variables"
			if f, ok := decl.(*ast.FuncDecl); ok {
				place = path + ": " + f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					if !isCheckOptions(n.Type) {
						return true
					}
					if slices.ContainsFunc(n.Elts, isStrict) {
						strict++
					} else {
						met[place] = true
					}
				case *ast.ValueSpec: // a variable that begins as the zero value
					if isCheckOptions(n.Type) {
						met[place] = true
					}
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Validate" && isNamed(f.X, "eventlog") {
						met[place] = true
					}
					if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "new" && isCheckOptions(n.Args[0]) {
						met[place] = true
					}
				case *ast.AssignStmt:
					for i, to := range n.Lhs {
						if field, ok := to.(*ast.SelectorExpr); ok && field.Sel.Name == "Strict" && !isNamed(n.Rhs[min(i, len(n.Rhs)-1)], "true") {
							met[place] = true
						}
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil || strict < 10 {
		t.Fatalf("%d strict checks: %v", strict, err)
	}
	for _, place := range slices.Sorted(maps.Keys(met)) {
		if lenient[place] == "" {
			t.Errorf("%s checks a run without Strict: true: let it be strict, or list it with the reason", place)
		}
	}
	for place := range lenient {
		if !met[place] {
			t.Errorf("%s is strict now: take it off the list", place)
		}
	}
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// isCheckOptions reports whether a type is [eventlog.CheckOptions]. No other type has this name.
func isCheckOptions(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	return ok && isNamed(selector.X, "eventlog") && selector.Sel.Name == "CheckOptions" || isNamed(e, "CheckOptions")
}

// isStrict reports whether an element of a literal is Strict: true.
func isStrict(e ast.Expr) bool {
	pair, ok := e.(*ast.KeyValueExpr)
	return ok && isNamed(pair.Key, "Strict") && isNamed(pair.Value, "true")
}

// TestValidateIsStrict: a database reports runs that only the strict rules refuse.
func TestValidateIsStrict(t *testing.T) {
	for name, events := range logtest.Lenient("run") {
		if !events[1].Kind.Valid() {
			continue // no log takes it
		}
		db := starling.Must(store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), store.Options{}))
		defer db.Close()
		for _, ev := range events {
			if err := db.Append(t.Context(), ev.RunID, ev); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Sync(t.Context(), "run"); err != nil {
			t.Fatal(err)
		}
		v, err := starling.Over(db, starling.Options{}).Validate(t.Context(), "run")
		if err != nil || !errors.Is(v.Err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}
