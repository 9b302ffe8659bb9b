package registry

import (
	"context"
	"os/exec"
)

// scripts are the files that make a folder a tool in TypeScript or JavaScript.
var scripts = []string{"tool.ts", "tool.js"}

// scriptBuilder is the command of guest-sdk/js. It is the one in PATH, and never
// one that lies among the packages of the folder: to build a tool must not run it.
const scriptBuilder = "starling-build"

// buildScript returns the module of the tool in the file script. It is built
// each time, which takes half a second: what a build reads is not known before.
func buildScript(ctx context.Context, ref, dir, script string) ([]byte, error) {
	path, err := exec.LookPath(scriptBuilder)
	if err != nil {
		return nil, &Error{Ref: ref, Reason: "a folder with " + script + " is built with " + scriptBuilder + ", and there is no such command in PATH",
			Hint: "run npm ci and npm link in guest-sdk/js, which need Node, or give a .wasm file"}
	}
	t := toolchain{path: path, ref: ref, dir: dir}
	return t.build(ctx, func(out string) []string { return []string{script, out} })
}
