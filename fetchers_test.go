package starling_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// connectors are the places outside of runtime/egress that build an HTTP client or open a connection,
// by file and what they use, with the reason why no stranger chooses where that leads.
var connectors = map[string]string{
	"host/artifact/fetch.go http.Client":             "its transport is egress.Origin",
	"runtime/mcptool/client.go http.Client":          "its transport is egress.Origin, or the embedder's",
	"runtime/mcptool/oauth.go http.Client":           "its transport is Linked of egress.Origin, or the embedder's",
	"serve/seal.go http.Client":                      "its transport is egress.Origin, and it follows no redirect",
	"serve/traces.go http.Client":                    "its transport is egress.Origin",
	"serve/resolve.go http.Client":                   "asks this host itself, at the address that its file says",
	"serve/resolve.go http.Transport":                "asks this host itself, at the address that its file says",
	"serve/resolve.go net.Dialer":                    "asks this host itself, at the address that its file says",
	"serve/listen.go net.Dial":                       "asks whether a host listens at the socket of its own file",
	"runtime/provider/hash.go http.DefaultClient":    "the operator names the model provider, and no redirect of one is followed",
	"runtime/provider/hash.go http.DefaultTransport": "the operator names the model provider, and no redirect of one is followed",
}

// TestWhatFetchesUsesEgress walks the product for what opens connections. Each place is in package
// egress, or in the list with its reason.
func TestWhatFetchesUsesEgress(t *testing.T) {
	opens := map[string][]string{
		"net/http":   {"Client", "Transport", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"},
		"net":        {"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "DialIP", "Dialer"},
		"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
	}
	met := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			outside := []string{"bench", "examples", "docs", "release", "tools-wasm", "guest-sdk", "testdata", "runtime/egress", ".git", "node_modules"}
			if slices.Contains(outside, filepath.ToSlash(path)) || slices.Contains(outside, d.Name()) || strings.HasSuffix(d.Name(), "test") {
				return filepath.SkipDir // of other modules, for tests, or the one door itself
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		names := map[string]string{} // of the packages, in this file
		for _, spec := range file.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			name := imported[strings.LastIndex(imported, "/")+1:]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			names[name] = imported
		}
		types := map[ast.Node]bool{} // of fields, parameters and assertions: they build nothing
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StarExpr:
				types[n.X] = true
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if imported := names[nameOf(pkg)]; ok && !types[n] && slices.Contains(opens[imported], n.Sel.Name) {
					place := filepath.ToSlash(path) + " " + pkg.Name + "." + n.Sel.Name
					met[place] = true
					if connectors[place] == "" {
						t.Errorf("%s: what a stranger can lead somewhere goes through egress.Fetch or egress.Client; anything else is listed here with its reason", place)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for place := range connectors {
		if !met[place] {
			t.Errorf("%s is not there any more", place)
		}
	}
}

func nameOf(id *ast.Ident) string {
	if id == nil {
		return ""
	}
	return id.Name
}
