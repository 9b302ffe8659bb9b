//go:build !js

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
)

// sdkScript is what a tool imports from "starling": members of the argument of the script, which
// the engine gives it (guest-sdk/js/runtime/main.js).
const sdkScript = "export const { tool, transient, cancel, discard, snooze, now, random, fs, HTTPError } = starling;"

// bundler gathers the files of a tool in TypeScript or JavaScript for esbuild.
type bundler struct {
	folder
	texts     map[string][]byte // of what was read, by path
	importing map[string]bool   // the files that import "starling"
}

// bundle makes the script of the file name in the folder root, of which all links have been
// followed. No file outside of the folder becomes part of it, and no file of the folder is executed.
// The error is for the author: one message for each mistake.
func bundle(root, name string) (*bundled, error) {
	entry := filepath.Join(root, name)
	if real, err := filepath.EvalSymlinks(entry); err != nil {
		return nil, err
	} else if !within(root, real) {
		return nil, fmt.Errorf("%s is %s, which is outside of the folder %s", name, real, root)
	}
	settings, err := compilerSettings(root)
	if err != nil {
		return nil, err
	}
	f := &bundler{folder: folder{root: root}, texts: map[string][]byte{}, importing: map[string]bool{}}
	// The tool is required, not imported, so that its start-up code runs where the engine
	// catches what it throws.
	built := api.Build(api.BuildOptions{
		Stdin:         &api.StdinOptions{Contents: "export default () => require(" + strconv.Quote("./"+name) + ");", ResolveDir: root},
		AbsWorkingDir: root, Plugins: []api.Plugin{{Name: "starling", Setup: f.setup}}, TsconfigRaw: settings,
		Bundle: true, Outfile: "tool.js", Sourcemap: api.SourceMapExternal,
		Format: api.FormatIIFE, GlobalName: "bundle", Target: api.ES2023, LogLevel: api.LogLevelSilent,
		Platform: api.PlatformBrowser, // of a package that has two forms, the one that needs no Node
		Define:   map[string]string{"process.env.NODE_ENV": `"production"`, "global": "globalThis"},
	})
	if len(built.Errors) > 0 {
		return nil, errors.New(strings.Join(lists.Map(built.Errors, f.complaint), "\n"))
	}
	b := &bundled{Imports: f.imports()}
	doors, err := json.Marshal(b.Imports)
	if err != nil {
		return nil, err
	}
	var code, lines []byte
	for _, out := range built.OutputFiles {
		if filepath.Ext(out.Path) == ".map" {
			lines, err = placeTable(work.For(context.Background(), len(out.Contents)), out.Contents)
		} else if filepath.Ext(out.Path) == ".js" {
			code = out.Contents
		}
	}
	b.Script = fmt.Appendf(nil, "(starling) => { %s return { startUp: bundle.default, name: %q, lines: %s, doors: %s }; }", code, name, lines, doors)
	return b, err
}

// setup makes esbuild take every file from the folder, whichever import, configuration or link
// leads to it, and find "starling". esbuild also reads the source map that a file names in its last
// comment about one, so each file gets an empty one.
func (f *bundler) setup(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: "^starling$"}, func(args api.OnResolveArgs) (api.OnResolveResult, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.importing[args.Importer] = true
		return api.OnResolveResult{Path: "starling", Namespace: "starling"}, nil
	})
	build.OnLoad(api.OnLoadOptions{Filter: ".", Namespace: "starling"}, func(api.OnLoadArgs) (api.OnLoadResult, error) {
		text := sdkScript
		return api.OnLoadResult{Contents: &text}, nil
	})
	build.OnLoad(api.OnLoadOptions{Filter: ".", Namespace: "file"}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
		content, err := f.read(args.Path)
		if err != nil {
			message := api.Message{Text: err.Error()}
			if errors.As(err, new(*refusal)) {
				message.Detail = args.Path
			}
			return api.OnLoadResult{Errors: []api.Message{message}}, nil
		}
		f.mu.Lock()
		f.texts[args.Path] = content
		f.mu.Unlock()
		text := string(content)
		const map0 = "# sourceMappingURL=data:application/json,{}"
		if ext := filepath.Ext(args.Path); len(args.With) == 0 && ext == ".css" {
			text += "\n/*" + map0 + " */"
		} else if len(args.With) == 0 && isScript().MatchString(ext) {
			text += "\n//" + map0
		}
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderDefault}, nil
	})
}

// imports returns the imports of starling:v1 that the author's files name: http if one has the word
// fetch, and the others if a file that imports "starling" has theirs. The word fs stands for the functions
// of WASI on files. Code that calls one without naming it, by eval for instance, gets an error.
func (f *bundler) imports() []string {
	names := []string{}
	for _, word := range []string{"fetch", abi.ImportNow, abi.ImportRandom, "fs"} {
		named := regexp.MustCompile(`\b` + word + `\b`)
		for path, text := range f.texts {
			if (word == "fetch" || f.importing[path]) && named.Match(text) {
				names = append(names, strings.Replace(word, "fetch", abi.ImportHTTP, 1))
				break
			}
		}
	}
	return names
}

// complaint returns a message of esbuild with its place, its line and what the author can do.
func (f *bundler) complaint(m api.Message) string {
	said, line := strings.Replace(m.Text, `"starling:starling"`, `"starling"`, 1), ""
	var name string // what was imported
	if l := m.Location; l != nil {
		said = fmt.Sprintf("%s:%d:%d: %s", l.File, l.Line, l.Column+1, said)
		line = "\n    " + strings.TrimSpace(l.LineText)
		if l.Length > 2 && l.Column+l.Length <= len(l.LineText) {
			name = l.LineText[l.Column+1 : l.Column+l.Length-1]
		}
	}
	if path, ok := m.Detail.(string); ok {
		return said + line + "\nhint: " + f.remedy(name, path)
	}
	missing := regexp.MustCompile(`^Could not resolve "([^"./][^"]*)"`).FindStringSubmatch(m.Text)
	switch {
	case missing == nil:
	case strings.HasPrefix(missing[1], "node:"), len(m.Notes) > 0 && strings.Contains(m.Notes[0].Text, "built into node"):
		line += "\nhint: a tool is not run by Node and has no files, processes or sockets: guest-sdk/js/README.md lists what there is"
	case packageOf(missing[1]) != "":
		line += "\nhint: install the package in the folder: npm install --prefix " + display.ShellWord(f.root) + " " + packageOf(missing[1])
	}
	return said + line
}

// remedy returns what an author can do about the import of a file that is not read: name is what
// was imported, path the file that it led to.
func (f *bundler) remedy(name, path string) string {
	pack := packageOf(name)
	real, err := filepath.EvalSymlinks(path)
	if err != nil || within(f.root, real) {
		return "import only what the tool uses"
	}
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
		return "the package is linked, so install a copy of it: npm install --prefix " + display.ShellWord(f.root) + " --install-links " + display.ShellWord(dir)
	case pack != "" && ofPackage:
		return "install it in the folder: npm install --prefix " + display.ShellWord(f.root) + " " + pack
	}
	return "copy it into the folder, or move the tool's file to a folder above both"
}

var packageName = lazy.Regexp(`^(@[\w.-]+/[\w.-]+|\w[\w.-]*)(/|$)`)

// packageOf returns the package that an import names, or nothing if it names a file.
func packageOf(name string) string {
	if m := packageName().FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// compilerSettings returns the tsconfig.json of the folder, or its jsconfig.json, with what it
// extends. esbuild would read one of any folder above, and follow what it extends anywhere.
func compilerSettings(root string) (string, error) {
	f := &folder{root: root}
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
	plain := trailingComma().ReplaceAll(comment().ReplaceAll(text, []byte("$1")), []byte("$1$2"))
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
	comment       = lazy.Regexp(`("(?:\\.|[^"\\])*")|//.*|/\*(?s:.*?)\*/`)
	trailingComma = lazy.Regexp(`("(?:\\.|[^"\\])*")|,(\s*[\]}])`)
)

// placeTable returns, in JSON, which parts of the script are the author's or a package's, and where
// they came from: a list of files, and runs. A run ends where the next one begins. Within it, lines
// and columns are as far from each other as in the file. It is the line and the column in the
// script at which it begins, the number of the file, or -1 for none, and what is added to a line and
// to a column to find them there.
func placeTable(budget *work.Budget, sourceMap []byte) ([]byte, error) {
	var m struct {
		Mappings string
		Sources  []string
	}
	if err := json.Unmarshal(sourceMap, &m); err != nil {
		return nil, err
	}
	files := make([]string, len(m.Sources))
	for i, file := range m.Sources {
		if at := strings.LastIndex(file, "node_modules/"); at >= 0 {
			files[i] = file[at:]
		} else if file != "<stdin>" && file != "starling:starling" {
			files[i] = file
		}
	}
	type run struct{ file, lines, columns int }
	var runs []string
	last := run{file: -1}
	add := func(line, column int, r run) {
		if r != last {
			numbers := lists.Map([]int{line, column, r.file, r.lines, r.columns}, func(n int) string { return strconv.FormatInt(int64(n), 36) })
			runs, last = append(runs, strings.Join(numbers, " ")), r
		}
	}
	source, line, from := 0, 0, 0 // of the last mapping, from 0
	for at, group := range strings.Split(m.Mappings, ";") {
		if group == "" {
			add(at, 0, run{file: -1})
			continue
		}
		if err := budget.Spend(len(group)); err != nil {
			return nil, err
		}
		column, begin := 0, 0 // what is before the first mapping of a line belongs to it
		segments := strings.Split(group, ",")
		for i, segment := range segments {
			fields := decodeVLQ(segment)
			if len(fields) < 4 {
				continue
			}
			column, source, line, from = column+fields[0], source+fields[1], line+fields[2], from+fields[3]
			if i == 0 && column == 0 && len(segments) > 1 {
				continue // esbuild repeats the last mapping of the line before
			}
			if begin > 0 {
				begin = column
			}
			switch file := files[source]; {
			case file == "":
				add(at, begin, run{file: -1})
			case strings.HasPrefix(file, "node_modules/"): // a line is enough
				add(at, begin, run{source, line - at, 0})
			default:
				add(at, begin, run{source, line - at, from - column})
			}
			begin = max(column, 1)
		}
	}
	return json.Marshal(map[string]any{"files": files, "runs": strings.Join(runs, ",")})
}

// decodeVLQ returns the numbers of a segment of a source map.
func decodeVLQ(segment string) (fields []int) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	value, shift := 0, 0
	for _, digit := range []byte(segment) {
		bits := strings.IndexByte(digits, digit)
		value |= bits & 31 << shift
		shift += 5
		if bits&32 == 0 {
			if value&1 != 0 {
				value = -value
			}
			fields = append(fields, value/2)
			value, shift = 0, 0
		}
	}
	return fields
}
