// Package guestsdk holds what the program carries for authors of tools: for each language the
// template of a tool, and the files of its SDK. So a new tool builds anywhere, without a clone of this
// repository and without a network.
package guestsdk

import (
	"archive/zip"
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Language is a language in which tools are written.
type Language struct {
	Name  string // of --lang
	Title string
	Needs string // the command that builds a tool, or nothing if the program does it

	template string            // the folder of the template
	sdk      map[string]string // files and folders of the SDK, and their places in a tool
}

// goArchive has the files for Go, which are a Go module of their own and so cannot be embedded.
//
//go:embed go.zip
var goArchive []byte

//go:embed as/README.md as/assembly as/template c/README.md c/starling.h c/template js/starling.d.ts js/template js/template-js python/starling.pyi python/template rust/Cargo.toml rust/README.md rust/src rust/template
var folders embed.FS

var languages = []Language{
	{Name: "go", Title: "Go", Needs: "go", template: "template", sdk: map[string]string{"sdk": "sdk"}},
	{Name: "python", Title: "Python", template: "python/template", sdk: map[string]string{"python/starling.pyi": "starling.pyi"}},
	{Name: "ts", Title: "TypeScript", template: "js/template", sdk: map[string]string{"js/starling.d.ts": "sdk/starling.d.ts"}},
	{Name: "js", Title: "JavaScript", template: "js/template-js", sdk: map[string]string{"js/starling.d.ts": "sdk/starling.d.ts"}},
	{Name: "rust", Title: "Rust", Needs: "rustc", template: "rust/template", sdk: map[string]string{
		"rust/Cargo.toml": "sdk/Cargo.toml", "rust/README.md": "sdk/README.md", "rust/src": "sdk/src",
	}},
	{Name: "c", Title: "C", Needs: "clang", template: "c/template", sdk: map[string]string{
		"c/README.md": "sdk/README.md", "c/starling.h": "sdk/starling.h",
	}},
	{Name: "as", Title: "AssemblyScript", Needs: "asc", template: "as/template", sdk: map[string]string{
		"as/README.md": "sdk/README.md", "as/assembly": "sdk",
	}},
}

// Languages returns the languages that have a template.
func Languages() []Language {
	return slices.DeleteFunc(slices.Clone(languages), func(l Language) bool {
		_, err := fs.Stat(l.files(), l.template)
		return err != nil
	})
}

func (l Language) files() fs.FS {
	if l.Name != "go" {
		return folders
	}
	archive, err := zip.NewReader(bytes.NewReader(goArchive), int64(len(goArchive)))
	if err != nil {
		panic(err) // the archive is part of the program
	}
	return archive
}

// Name checks the name of a new tool and returns its two forms: that of the tool, with underscores,
// and that of the package, with hyphens.
func Name(name string) (tool, pkg string, err error) {
	tool, pkg = strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "_", "-")
	switch {
	case !regexp.MustCompile(`^[a-z](?:[a-z0-9]|[-_][a-z0-9]){0,39}$`).MatchString(name):
		return "", "", errors.New("a name has lower-case letters and digits in words of which the first begins with a letter, with - or _ between them, and at most 40 characters")
	case slices.Contains(strings.Fields(reserved), tool):
		return "", "", errors.New("this is a word of a programming language")
	}
	return tool, pkg, nil
}

// reserved are words that no function or package can be named in one of the languages.
const reserved = `abstract and as assert async await base become box break case catch chan char class const continue core
	crate debugger def default defer del delete do double dyn elif else enum except export extends extern false final
	finally float fn for from func function global go goto if impl implements import in inline instanceof int interface
	internal is lambda let long loop macro main map match mod move mut new nil none nonlocal not null or override package
	pass priv private protected pub public raise range ref register return sdk select self short signed sizeof static std
	struct super switch test this throw trait true try type typedef typeof union unsafe unsigned use var void volatile
	while where with yield`

// Files returns the files of a new tool by their paths, with slashes: the template, in which the names
// of the example are replaced, and below sdk the SDK.
func (l Language) Files(tool, pkg string) (map[string][]byte, error) {
	files, named := map[string][]byte{}, strings.NewReplacer("example_tool", tool, "example-tool", pkg)
	copied := func(from, to string, convert func(string) string) error {
		return fs.WalkDir(l.files(), from, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := fs.ReadFile(l.files(), p)
			files[convert(path.Join(to, strings.TrimPrefix(strings.TrimPrefix(p, from), "/")))] = content
			return err
		})
	}
	err := copied(l.template, "", func(p string) string {
		if rest, ok := strings.CutSuffix(p, ".txt"); ok && strings.Contains(path.Base(rest), ".") {
			p = rest // such as go.mod.txt
		}
		return strings.ReplaceAll("/"+named.Replace(p), "/dot.", "/.")[1:]
	})
	for p, content := range files {
		files[p] = []byte(named.Replace(string(content)))
	}
	for from, to := range l.sdk {
		err = errors.Join(err, copied(from, to, func(p string) string { return p }))
	}
	return files, err
}
