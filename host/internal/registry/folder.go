//go:build !js

package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// folder is the folder of a tool in TypeScript or JavaScript, whose files alone a build may read.
type folder struct {
	root string // all links followed

	sync.Mutex
	texts     map[string][]byte // of what was read, by path
	size      int64             // of them together
	importing map[string]bool   // the files that import "starling"
}

// maxSources bounds the files of a build together.
const maxSources = 32 << 20

// outsideError is the reason why a file is not read.
type outsideError struct{ real, root string }

func (e *outsideError) Error() string {
	return fmt.Sprintf("%s is outside of %s, and a tool is built from the files of its folder alone", e.real, e.root)
}

// read returns the content of a file of the folder.
func (f *folder) read(path string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if !within(f.root, real) {
		return nil, &outsideError{real, f.root}
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", real)
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSources+1))
	if err != nil {
		return nil, err
	}
	f.Lock()
	defer f.Unlock()
	if f.size += int64(len(content)); f.size > maxSources {
		return nil, fmt.Errorf("%s: the files of the tool have more than %d MiB", real, maxSources>>20)
	}
	f.texts[path] = content
	return content, nil
}

// remedy says what an author can do about the import of a file that is outside of the folder: name
// is what was imported, real the file that it led to.
func (f *folder) remedy(name, real string) string {
	pack := packageOf(name)
	ofPackage := strings.Contains(real, string(filepath.Separator)+"node_modules"+string(filepath.Separator))
	info, err := os.Lstat(filepath.Join(f.root, "node_modules", pack))
	switch {
	case pack != "" && !ofPackage && err == nil && info.Mode()&os.ModeSymlink != 0:
		dir := filepath.Dir(real)
		for dir != filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "package.json")); err == nil {
				break
			}
			dir = filepath.Dir(dir)
		}
		return "the package is linked, so install a copy of it: npm install --prefix " + quote(f.root) + " --install-links " + quote(dir)
	case pack != "" && ofPackage:
		return "install it in the folder: npm install --prefix " + quote(f.root) + " " + pack
	}
	return "copy it into the folder, or move the tool's file to a folder above both"
}

var packageName = regexp.MustCompile(`^(@[\w.-]+/[\w.-]+|\w[\w.-]*)(/|$)`)

// packageOf returns the package that an import names, or nothing if it names a file.
func packageOf(name string) string {
	if m := packageName.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

var plainPath = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

func quote(path string) string {
	if plainPath.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// compilerSettings returns the tsconfig.json of the folder, or its jsconfig.json, with what it
// extends. esbuild would read one of any folder above, and follow what it extends anywhere.
func compilerSettings(root string) (string, error) {
	f := &folder{root: root, texts: map[string][]byte{}}
	options := map[string]any{}
	for _, name := range []string{"tsconfig.json", "jsconfig.json"} {
		path := filepath.Join(root, name)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		var err error
		if options, err = f.options(path, 0); err != nil {
			return "", err
		}
		break
	}
	text, err := json.Marshal(map[string]any{"compilerOptions": options})
	return string(text), err
}

// options returns the compilerOptions of a file, with those of the files that it extends. What
// another package says of types is not followed: no build checks them.
func (f *folder) options(path string, depth int) (map[string]any, error) {
	if depth > 10 {
		return nil, fmt.Errorf("%s: it extends too many files", path)
	}
	text, err := f.read(path)
	if err != nil {
		return nil, err
	}
	var config struct {
		Extends         any
		CompilerOptions map[string]any
	}
	plain := trailingComma.ReplaceAll(comment.ReplaceAll(text, []byte("$1")), []byte("$1$2"))
	if err := json.Unmarshal(plain, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	at := func(base string, p any) string {
		text, _ := p.(string)
		if filepath.IsAbs(text) {
			return text
		}
		return filepath.Join(base, text)
	}
	dir, own := filepath.Dir(path), config.CompilerOptions
	base := dir
	if b, ok := own["baseUrl"]; ok {
		base = at(dir, b)
		own["baseUrl"] = base
	}
	paths, _ := own["paths"].(map[string]any)
	for _, targets := range paths {
		list, _ := targets.([]any)
		for i := range list {
			list[i] = at(base, list[i])
		}
	}
	all := map[string]any{}
	bases, ok := config.Extends.([]any)
	if !ok {
		bases = []any{config.Extends}
	}
	for _, b := range bases {
		name, _ := b.(string)
		if !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "/") {
			continue
		}
		file := at(dir, name)
		if _, err := os.Stat(file); err != nil {
			file += ".json"
		}
		inherited, err := f.options(file, depth+1)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, inherited)
	}
	maps.Copy(all, own)
	return all, nil
}

// JSON with comments, and with commas before a closing bracket.
var (
	comment       = regexp.MustCompile(`("(?:\\.|[^"\\])*")|//.*|/\*(?s:.*?)\*/`)
	trailingComma = regexp.MustCompile(`("(?:\\.|[^"\\])*")|,(\s*[\]}])`)
)
