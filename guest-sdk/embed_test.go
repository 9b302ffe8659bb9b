package guestsdk_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	guestsdk "github.com/starling-host/starling/guest-sdk"
)

func ExampleLanguage_Files() {
	tool, pkg, _ := guestsdk.Name("weather-today")
	for _, language := range guestsdk.Languages() {
		if language.Name != "python" {
			continue
		}
		files, _ := language.Files(tool, pkg)
		for _, path := range slices.Sorted(maps.Keys(files)) {
			fmt.Println(path)
		}
	}
	// Output:
	// .gitignore
	// .vscode/tasks.json
	// README.md
	// cases/hello.txtar
	// policy.yaml
	// starling.pyi
	// test_tool.py
	// tool.py
}

// TestTemplates checks what all templates promise.
func TestTemplates(t *testing.T) {
	for _, language := range guestsdk.Languages() {
		files, err := language.Files("weather_today", "weather-today")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"README.md", "policy.yaml", "cases/hello.txtar", ".vscode/tasks.json", ".gitignore"} {
			if files[path] == nil {
				t.Errorf("%s: no %s", language.Name, path)
			}
		}
		if lines := strings.Count(string(files["README.md"]), "\n"); lines > 40 {
			t.Errorf("%s: README.md has %d lines", language.Name, lines)
		}
		named := false
		for path, text := range files {
			if strings.HasPrefix(path, "sdk/") {
				continue
			}
			named = named || strings.Contains(string(text), "weather_today")
			if strings.Contains(path+string(text), "example_tool") || strings.Contains(path+string(text), "example-tool") || strings.HasPrefix(filepath.Base(path), "dot.") {
				t.Errorf("%s: %s has a name of the template", language.Name, path)
			}
		}
		if !named {
			t.Errorf("%s: no file names the tool", language.Name)
		}
	}
}

func TestName(t *testing.T) {
	for name, want := range map[string]string{"weather": "weather weather", "weather-today": "weather_today weather-today", "a1_b2": "a1_b2 a1-b2"} {
		if tool, pkg, err := guestsdk.Name(name); err != nil || tool+" "+pkg != want {
			t.Errorf("%s: %s %s, %v", name, tool, pkg, err)
		}
	}
	for _, name := range []string{"", "A", "1a", "a b", "a--b", "a-", "-a", "a/b", "ä", "class", "func", "def", "main", strings.Repeat("a", 41), "a.wasm", ".."} {
		if tool, _, err := guestsdk.Name(name); err == nil {
			t.Errorf("%q is the tool %s", name, tool)
		}
	}
}
