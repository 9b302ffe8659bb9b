package registry

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/keyfile"
)

const rustTarget = "wasm32-unknown-unknown"

// findRust looks for a rustc that can build modules, and returns its version. A rustc of PATH
// may be one that runs another rustc, so the one in the folder that it names is taken.
func (n *native) findRust(ctx context.Context) (string, error) {
	what := "rustc, and there is none in PATH"
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		found, err := exec.LookPath(filepath.Join(dir, "rustc"))
		if err != nil || !filepath.IsAbs(found) {
			continue
		}
		n.path = found
		out, err := n.run(ctx, "--print", "sysroot")
		if ctx.Err() != nil {
			return "", err
		}
		what = "the standard library of Rust for " + rustTarget + ", which " + found + " does not have"
		sysroot := strings.TrimSpace(string(out))
		if _, missing := os.Stat(filepath.Join(sysroot, "lib", "rustlib", rustTarget, "lib")); err == nil && missing == nil {
			n.path = filepath.Join(sysroot, "bin", filepath.Base(found))
			version, err := n.run(ctx, "-vV")
			return string(version), err
		}
	}
	return "", n.missing(what, "rustup target add "+rustTarget, "apt-get install rustc libstd-rust-dev-wasm32",
		"dnf install rust rust-std-static-"+rustTarget, "brew install rustup && rustup default stable && rustup target add "+rustTarget)
}

// compileRust compiles the SDK and then the tool. The library that the SDK becomes is
// cached, too, because it takes most of the time.
func (n *native) compileRust(ctx context.Context) error {
	c, err := n.readCargo(ctx)
	if err != nil {
		return err
	}
	list, library := filepath.Join(n.work, "list.d"), filepath.Join(n.work, "libstarling_tool.rlib")
	root := filepath.Dir(filepath.Dir(n.path))
	var linkers []string
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(root, "lib", "rustlib", "*", "bin", pattern))
		linkers = append(linkers, found...)
	}
	for _, name := range []string{"rust-lld", "wasm-ld", "lld"} {
		if found, err := exec.LookPath(name); err == nil {
			linkers = append(linkers, found)
		}
	}
	if err := n.confine(ctx, n.work, linkers, n.dir, filepath.Join(root, "lib", "rustlib", rustTarget)); err != nil {
		return err
	}
	compile := func(folder, out string, args ...string) error {
		_, err := n.run(ctx, slices.Concat([]string{"--target", rustTarget, "-Copt-level=2", "-Ccodegen-units=1", "-Cpanic=abort", "-Cdebuginfo=2",
			"-Funstable-features", "--remap-path-prefix", n.tmp + "=.", "--remap-path-prefix", n.dir + "=.",
			"--out-dir=" + n.work, "--emit=link=" + out + ",dep-info=" + list}, args, []string{filepath.Join(folder, "src", "lib.rs")})...)
		if err != nil {
			return err
		}
		return n.checkRead(list, folder)
	}
	args := []string{"--crate-type=cdylib", "--crate-name=tool", "--edition=" + c.edition}
	if c.sdk != "" {
		args = append(args, "--extern=starling_tool="+library)
		key := n.key(c.sdk, "library", n.version)
		text, cached := n.cache.get(key)
		if cached {
			err = os.WriteFile(library, text, 0o600)
		} else if err = compile(filepath.Join(n.dir, c.sdk), library, "--crate-type=rlib", "--crate-name=starling_tool", "--edition=2021"); err == nil {
			if text, err = keyfile.ReadFile(library, MaxModuleBytes); err == nil {
				n.cache.put(key, text)
			}
		}
		if err != nil {
			return err
		}
	}
	return compile(n.dir, n.out, args...)
}

type crate struct {
	edition string
	sdk     string // the folder of the SDK, or empty
}

// readCargo reads what a build of the SDK and the tool needs of Cargo.toml, and refuses a
// tool that needs more: cargo would execute what other crates bring.
func (n *native) readCargo(ctx context.Context) (crate, error) {
	text, err := keyfile.ReadFile(filepath.Join(n.dir, "Cargo.toml"), maxSources)
	if err != nil {
		return crate{}, fmt.Errorf("registry: %w", err)
	}
	var m struct {
		Package, Lib, Dependencies map[string]any
		Features, Target           any
		Build                      any `toml:"build-dependencies"`
	}
	if err := decodeTOML(ctx, text, &m); err != nil {
		return crate{}, &Error{Ref: n.ref, Reason: "Cargo.toml: " + err.Error()}
	}
	c, needs := crate{edition: "2015"}, ""
	if edition, ok := m.Package["edition"].(string); ok {
		c.edition = edition
	}
	for _, name := range slices.Sorted(maps.Keys(m.Dependencies)) {
		if name != "starling-tool" {
			needs = "the crate " + name
		} else if from, _ := m.Dependencies[name].(map[string]any); from["path"] == nil {
			needs = "the crate starling-tool from elsewhere than a path in the folder"
		} else {
			c.sdk = path.Clean(fmt.Sprint(from["path"]))
		}
	}
	for section, value := range map[string]any{"build-dependencies": m.Build, "features": m.Features, "target": m.Target} {
		if value != nil {
			needs = "the section " + section + " of Cargo.toml"
		}
	}
	if m.Package["build"] != nil || m.Lib["proc-macro"] != nil || m.Lib["proc_macro"] != nil {
		needs = "a program that runs during the build"
	}
	if _, build := n.files["build.rs"]; build {
		needs = "build.rs"
	}
	if c.sdk != "" && !filepath.IsLocal(c.sdk) {
		return c, outside(c.sdk)
	}
	if needs != "" {
		return c, &Error{Ref: n.ref, Reason: "the tool needs " + needs + ", and cargo would execute programs to build that; the host builds only the tool and the crate starling-tool",
			Hint: "if you trust the folder, build it yourself and run the module, in the folder: cargo build --release --target " + rustTarget + " && starling-host run target/" + rustTarget + "/release/*.wasm"}
	}
	return c, nil
}
