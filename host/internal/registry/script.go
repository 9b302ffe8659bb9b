package registry

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// scripts are the files that make a folder a tool in TypeScript or JavaScript.
var scripts = []string{"tool.ts", "tool.js"}

// scriptBuilder is the command of guest-sdk/js. It is found through PATH, and
// never among the packages of the folder: building a tool must not run it.
const scriptBuilder = "starling-build"

// buildScript returns the module of the tool in the file script. It is built
// each time, which takes half a second: which files a build reads is not known
// before.
func buildScript(ctx context.Context, ref, dir, script string) ([]byte, error) {
	t, err := findScriptBuilder(ref, dir, script)
	if err != nil {
		return nil, err
	}
	return t.build(ctx, func(out string) []string { return []string{filepath.Join(dir, script), out} })
}

func findScriptBuilder(ref, dir, script string) (toolchain, error) {
	path, err := exec.LookPath(scriptBuilder)
	if err == nil {
		return toolchain{path: path, language: "JavaScript", ref: ref}, nil
	}
	failed := &Error{Ref: ref, Reason: "a folder with " + script + " is built with " + scriptBuilder + ", and there is no such command in PATH",
		Hint: "run npm ci and npm link in guest-sdk/js, which need Node, or give a .wasm file"}
	if _, err := os.Lstat(filepath.Join(dir, "node_modules", ".bin", scriptBuilder)); dir != "" && err == nil {
		failed.Reason += "; the one in node_modules/.bin is a program of the folder, which could do anything here, so it is not run"
		failed.Hint = "if you trust the folder, build it yourself and run the module, in the folder: npx " + scriptBuilder + " " + script + " tool.wasm && starling-host run tool.wasm"
	}
	return toolchain{}, failed
}

// ScriptBuilder returns the version of the command that would build a tool in TypeScript
// or JavaScript here, and its path. If it is missing or does not work, the error is an
// [*Error].
func ScriptBuilder(ctx context.Context) (version, path string, err error) {
	t, err := findScriptBuilder("", "", strings.Join(scripts, " or "))
	if err != nil {
		return "", "", err
	}
	out, err := t.run(ctx, "--version")
	if failed, ok := errors.AsType[*Error](err); ok {
		said, _, _ := strings.Cut(failed.Output, "\n")
		err = &Error{Reason: t.path + " does not work: " + said}
	}
	return strings.TrimSpace(string(out)), t.path, err
}
