package registry

import (
	"context"
	_ "embed"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/keyfile"
)

// ascScript calls the compiler as a library, with files of the copy alone. The command asc
// would also execute the transforms that asconfig.json and its relatives name.
//
//go:embed asc.mjs
var ascScript string

// ascFlags are the options of the compiler that decide bytes.
var ascFlags = []string{"assembly/index.ts", "--outFile", "tool.wasm", "--optimizeLevel", "3", "--shrinkLevel", "1", "--use", "abort=sdk/host/abort", "--use", "seed=sdk/host/seed"}

// findAsc looks for Node, and for the compiler's package beside the command asc.
func (n *native) findAsc(ctx context.Context) (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", n.missing("Node, and there is no node in PATH", "apt-get install nodejs npm", "dnf install nodejs", "pacman -S nodejs npm", "brew install node")
	}
	hint := "npm install -g assemblyscript@0.28"
	asc, err := exec.LookPath("asc")
	if err != nil {
		return "", n.missing("asc, and there is none in PATH", hint)
	}
	real, err := filepath.EvalSymlinks(asc)
	if err != nil {
		return "", n.missing("asc", hint)
	}
	n.path = node
	for _, root := range []string{filepath.Join(real, "..", ".."), filepath.Join(asc, "..", "node_modules", "assemblyscript"), filepath.Join(asc, "..", "..", "assemblyscript")} {
		manifest, err := keyfile.ReadFile(filepath.Join(root, "package.json"), maxSources)
		var p struct{ Name, Version string }
		if err == nil && json.Unmarshal(manifest, &p) == nil && p.Name == "assemblyscript" {
			n.parts = []string{root, filepath.Join(root, "..", "binaryen"), filepath.Join(root, "..", "long")}
			n.flags = []string{"--input-type=module", "--eval", ascScript, "--", filepath.Join(root, "dist", "asc.js")}
			return "asc " + p.Version + "\n" + string(manifest), nil
		}
	}
	return "", n.missing("the npm package assemblyscript, and "+asc+" is not from one", hint)
}

// compileAsc compiles assembly/index.ts.
func (n *native) compileAsc(ctx context.Context) error {
	if _, ok := n.files["assembly/index.ts"]; !ok {
		return &Error{Ref: n.ref, Reason: "the folder has no assembly/index.ts", Hint: "starling-host tool new NAME --lang as"}
	}
	for name := range n.files {
		if config, err := keyfile.ReadFile(filepath.Join(n.dir, filepath.FromSlash(name)), maxSources); err == nil && filepath.Base(name) == "asconfig.json" && strings.Contains(string(config), `"transform"`) {
			return &Error{Ref: n.ref, Reason: "asconfig.json names a transform, which is a program of the folder, so it is not executed",
				Hint: "if you trust the folder, build it yourself and run the module, in the folder: npx asc && starling-host run tool.wasm"}
		}
	}
	if err := n.confine(ctx, n.work, nil, append(n.parts, n.dir)...); err != nil {
		return err
	}
	_, err := n.run(ctx, slices.Concat([]string{n.dir, n.out}, ascFlags)...)
	return err
}
