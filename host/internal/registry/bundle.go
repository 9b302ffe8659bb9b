//go:build !js

package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/starling-host/starling/abi"
)

// bundled is the one script that a tool in TypeScript or JavaScript and all its imports become.
type bundled struct {
	Script  []byte
	Imports []string // of starling:v1
}

// sdkScript is what a tool imports from "starling": members of the argument of the script, which
// the engine gives it (guest-sdk/js/runtime/main.js).
const sdkScript = "export const { tool, transient, cancel, discard, snooze, now, random, HTTPError } = starling;"

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
	f := &folder{root: root, texts: map[string][]byte{}, importing: map[string]bool{}}
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
		var all []string
		for _, m := range built.Errors {
			all = append(all, f.complaint(m))
		}
		return nil, fmt.Errorf("%s", strings.Join(all, "\n"))
	}
	b := &bundled{Imports: f.imports()}
	doors, err := json.Marshal(b.Imports)
	if err != nil {
		return nil, err
	}
	var code, lines []byte
	for _, out := range built.OutputFiles {
		if filepath.Ext(out.Path) == ".map" {
			lines, err = lineTable(out.Contents)
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
func (f *folder) setup(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: "^starling$"}, func(args api.OnResolveArgs) (api.OnResolveResult, error) {
		f.Lock()
		defer f.Unlock()
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
			return api.OnLoadResult{Errors: []api.Message{{Text: err.Error(), Detail: err}}}, nil
		}
		text := string(content)
		const map0 = "# sourceMappingURL=data:application/json,{}"
		if ext := filepath.Ext(args.Path); len(args.With) == 0 && ext == ".css" {
			text += "\n/*" + map0 + " */"
		} else if len(args.With) == 0 && isScript.MatchString(ext) {
			text += "\n//" + map0
		}
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderDefault}, nil
	})
}

// imports returns the imports of starling:v1 that the author's files name: http if one has the word
// fetch, and the others if a file that imports "starling" has theirs. Code that calls one without
// naming it, by eval for instance, gets an error.
func (f *folder) imports() []string {
	names := []string{}
	for _, word := range []string{"fetch", abi.ImportNow, abi.ImportRandom} {
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
func (f *folder) complaint(m api.Message) string {
	said, line := strings.Replace(m.Text, `"starling:starling"`, `"starling"`, 1), ""
	var name string // what was imported
	if l := m.Location; l != nil {
		said = fmt.Sprintf("%s:%d:%d: %s", l.File, l.Line, l.Column+1, said)
		line = "\n    " + strings.TrimSpace(l.LineText)
		if l.Length > 2 && l.Column+l.Length <= len(l.LineText) {
			name = l.LineText[l.Column+1 : l.Column+l.Length-1]
		}
	}
	if outside, ok := m.Detail.(*outsideError); ok {
		return said + line + "\nhint: " + f.remedy(name, outside.real)
	}
	missing := unresolved.FindStringSubmatch(m.Text)
	switch {
	case missing == nil:
	case strings.HasPrefix(missing[1], "node:"), len(m.Notes) > 0 && strings.Contains(m.Notes[0].Text, "built into node"):
		line += "\nhint: a tool is not run by Node and has no files, processes or sockets: guest-sdk/js/README.md lists what there is"
	case packageOf(missing[1]) != "":
		line += "\nhint: install the package in the folder: npm install --prefix " + quote(f.root) + " " + packageOf(missing[1])
	}
	return said + line
}

var unresolved = regexp.MustCompile(`^Could not resolve "([^"./][^"]*)"`)

// lineTable returns, in JSON, which lines of the script are the author's or a package's, and where
// they came from: a list of files, and runs of lines that follow each other in both. A run is its
// first line in the script, the number of its file, or -1 if the line is of neither, and its first
// line there.
func lineTable(sourceMap []byte) ([]byte, error) {
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
	var runs bytes.Buffer
	source, line := 0, 0                   // of the last mapping, from 0
	lastAt, lastFile, lastLine := 0, -1, 0 // of the run
	for at, group := range strings.Split(m.Mappings, ";") {
		file := -1
		for segment := range strings.SplitSeq(group, ",") {
			if fields := decodeVLQ(segment); len(fields) >= 3 {
				source, line = source+fields[1], line+fields[2]
				if file = source; files[source] == "" {
					file = -1
				}
			}
		}
		if file == lastFile && (file < 0 || line-lastLine == at-lastAt) {
			continue
		}
		lastAt, lastFile, lastLine = at, file, line
		if file < 0 {
			lastLine = 0
		}
		if runs.Len() > 0 {
			runs.WriteByte(',')
		}
		fmt.Fprint(&runs, strconv.FormatInt(int64(lastAt), 36), " ", strconv.FormatInt(int64(lastFile), 36), " ", strconv.FormatInt(int64(lastLine), 36))
	}
	return json.Marshal(map[string]any{"files": files, "runs": runs.String()})
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
