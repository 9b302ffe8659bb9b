package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/cmd/starling-host/internal/openapi"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	guestsdk "github.com/starling-host/starling/guest-sdk"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
)

func (a *app) toolNewCommand() *cobra.Command {
	lang, from := "", ""
	var only []string
	private := false
	cmd := subcommand("new [NAME]", "write the folder of a new tool", func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			for _, line := range listLanguages() {
				a.stdout.Printf("%s\n", line)
			}
			return a.stdout.Printf("\nmake one: starling-host tool new NAME --lang %s\n", cmp.Or(lang, guestsdk.Languages()[0].Name))
		}
		return a.toolNew(cmd.Context(), args[0], lang, from, only, private)
	})
	names := lists.Map(guestsdk.Languages(), func(l guestsdk.Language) string { return l.Name })
	cmd.Flags().StringVar(&lang, "lang", "", "`LANGUAGE` of the tool: "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&from, "from", "", "OpenAPI document in `FILE`, JSON or YAML")
	cmd.Flags().StringArrayVar(&only, "only", nil, "with --from, take only the operations of `WORD`: a tag, an operationId or a /path; may be repeated")
	cmd.Flags().BoolVar(&private, "private", false, "with --from, take operations of a server that is not public")
	_ = cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// listLanguages returns a line for each language that has a template.
func listLanguages() (lines []string) {
	for _, l := range guestsdk.Languages() {
		needs := "needs nothing else"
		if l.Needs != "" {
			needs = "needs " + l.Needs + ", which is missing here"
			if path, err := exec.LookPath(l.Needs); err == nil {
				needs = "needs " + l.Needs + ": " + path
			}
		}
		lines = append(lines, fmt.Sprintf("  %-8s%-16s%s", l.Name, l.Title, needs))
	}
	return lines
}

func (a *app) toolNew(ctx context.Context, dir, lang, from string, only []string, private bool) error {
	dir = filepath.Clean(dir) // a shell completes a folder with a slash
	tool, pkg, err := guestsdk.Name(filepath.Base(dir))
	if err != nil {
		like := strings.Trim(regexp.MustCompile(`[^a-z0-9_]+`).ReplaceAllString(strings.ToLower(filepath.Base(dir)), "-"), "-")
		if _, _, err := guestsdk.Name(like); err != nil {
			like = "weather"
		}
		return usagef("such as: "+display.Command("starling-host tool new --lang "+cmp.Or(lang, "go"), filepath.Join(filepath.Dir(dir), like)), "new: %q is no name for a tool: %v", filepath.Base(dir), err)
	}
	var title string
	var files map[string][]byte
	languages := guestsdk.Languages()
	chosen := slices.IndexFunc(languages, func(l guestsdk.Language) bool { return l.Name == lang })
	switch {
	case from != "":
		title, files, err = filesFrom(ctx, dir, tool, lang, from, only, private)
	case private:
		return usagef("such as: starling-host tool new shop --from openapi.yaml --private", "new: --private requires --from with an OpenAPI document")
	case only != nil:
		return usagef("such as: starling-host tool new shop --from openapi.yaml --only orders", "new: --only requires --from")
	case chosen < 0:
		out := &failure{code: exitUsage, message: "new: --lang names the language of the tool", details: listLanguages(), hint: "starling-host tool new " + display.ShellWord(dir) + " --lang " + languages[0].Name}
		if lang != "" {
			out.message = fmt.Sprintf("new: --lang: there is no template for %q", lang)
		}
		return out
	default:
		title = languages[chosen].Title
		files, err = languages[chosen].Files(tool, pkg)
	}
	if err != nil {
		return err
	}
	if err := writeFolder(dir, files); err != nil {
		return err
	}
	call := "'{}'"
	cases, err := toolcase.Load(dir)
	if err == nil && len(cases) > 0 {
		call = display.ShellWord(string(cases[0].Input))
	}
	a.stdout.Printf("written  %s (%s, %s)\n", dir, title, display.Plural(len(files), "file"))
	if title == titleOpenAPI {
		a.stdout.Printf("read:    %s\n", filepath.Join(dir, "README.md"))
		if len(cases) == 0 {
			return a.stdout.Printf("tools:   starling-host tool describe %s\n", display.ShellWord(dir))
		}
		call += " --tool " + cases[0].Tool + " --policy " + display.ShellWord(filepath.Join(dir, "policy.yaml"))
	}
	a.stdout.Printf("run it:  starling-host run %s %s && starling-host replay @last\n", display.ShellWord(dir), call)
	return a.stdout.Printf("work:    starling-host tool dev %s\n", display.ShellWord(dir))
}

const titleOpenAPI = "Python, from OpenAPI"

// filesFrom returns the files of a tool whose functions the file from describes, and what they are.
func filesFrom(ctx context.Context, dir, tool, lang, from string, only []string, private bool) (title string, files map[string][]byte, err error) {
	again := "starling-host tool new " + display.ShellWord(dir) + " --from " + display.ShellWord(from)
	interfaces, _ := filepath.Glob(filepath.Join(from, "*.wit")) // in a folder
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return "", nil, &failure{code: exitUsage, message: "new: --from: " + err.Error()}
	case filepath.Ext(from) == ".wit" || len(interfaces) > 0:
		return "", nil, usagef("build a component from it, which the host runs: cargo build --target wasm32-wasip2 (with the crate wit-bindgen), cargo component build, wit-bindgen c, or npx @bytecodealliance/jco componentize (componentize-js)",
			"new: --from: %s is an interface in WIT, and --from reads OpenAPI documents", from)
	case !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(from)):
		return "", nil, usagef("give an OpenAPI document in .json or .yaml", "new: --from: %s describes no functions", from)
	case lang != "" && lang != "python":
		return "", nil, usagef(again, "new: --from %s makes a tool in python, not in %s", from, lang)
	case !info.Mode().IsRegular() || info.Size() > config.MaxData:
		return "", nil, usagef("choose a part of it in an editor", "new: --from: %s is not a file of at most %d bytes", from, config.MaxData)
	}
	spec, err := keyfile.ReadFile(from, config.MaxData)
	if err == nil {
		files, err = openapi.Folder(work.For(ctx, len(spec)), tool, from, spec, only, private)
	}
	return titleOpenAPI, files, err
}

// writeFolder writes a new folder: all of it, or nothing.
func writeFolder(dir string, files map[string][]byte) error {
	switch entries, err := os.ReadDir(dir); {
	case err == nil && len(entries) > 0:
		return usagef("choose another name, or remove the folder", "new: %s is there already, and not empty", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return &failure{code: exitUsage, message: "new: " + err.Error()}
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".new-tool-")
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("make it: "+display.Command("mkdir -p", filepath.Dir(dir)), "new: no such file or directory: %s", filepath.Dir(dir))
	} else if err != nil {
		return &failure{code: exitUsage, message: "new: " + err.Error()}
	}
	err = os.Chmod(made, 0o755)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(made, filepath.FromSlash(name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, files[name], 0o644))
	}
	if err == nil {
		if err = os.Remove(dir); errors.Is(err, fs.ErrNotExist) || err == nil { // it is empty
			err = os.Rename(made, dir)
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(made))
	}
	return nil
}

func (a *app) toolBuildCommand() *cobra.Command {
	out := ""
	cmd := subcommand("build TOOL", "build a tool, and write its module to one file", func(cmd *cobra.Command, args []string) error {
		module, doc, err := a.examine(cmd.Context(), args[0], artifact.Finder{})
		if err != nil {
			return err
		}
		write := writeFile
		if out == "" { // the folder's author could have put a link there
			out, write = module.Name+".wasm", func(_ context.Context, path string, content []byte, perm fs.FileMode, _ bool) error {
				return keyfile.Replace(path, content, perm)
			}
		}
		if source, err := os.Stat(doc.Source); err == nil {
			if target, err := os.Stat(out); err == nil && os.SameFile(source, target) {
				return usagef("write another file: "+display.Command("starling-host tool build -o FILE", args[0]), "build: %s would replace the file that it is made of", out)
			}
		}
		if err := write(cmd.Context(), out, module.Wasm, 0o644, true); err != nil {
			return err
		}
		a.stdout.Printf("written  %s, %s\n", out, display.Size(uint64(len(module.Wasm))))
		a.stdout.Printf("digest   %s\n", doc.Digest)
		imports := slices.DeleteFunc(slices.Clone(doc.Imports), func(name string) bool { return strings.HasPrefix(name, abi.WASIModule+".") })
		if n := len(doc.Imports) - len(imports); n > 0 {
			imports = append(imports, fmt.Sprintf("%d of WASI", n))
		}
		a.stdout.Printf("imports  %s\n", view.ListOr(imports, "none"))
		for _, t := range doc.Tools {
			first, _, _ := strings.Cut(t.Description, "\n")
			a.stdout.Printf("tool     %s: %s\n", t.Name, display.Shorten(display.Printable(first), 100))
		}
		return nil
	})
	cmd.Flags().StringVarP(&out, "out", "o", "", "write `FILE` (default NAME.wasm in this folder)")
	return cmd
}
