package registry

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	crate, err := n.readCargo()
	if err != nil {
		return err
	}
	flags := []string{"--target", rustTarget, "-Copt-level=2", "-Ccodegen-units=1", "-Cpanic=abort", "-Cstrip=debuginfo",
		"-Funstable-features", "--remap-path-prefix", n.dir + "=.", "--remap-path-prefix", n.tmp + "=."}
	list, library := filepath.Join(n.tmp, "list.d"), filepath.Join(n.tmp, "libstarling_tool.rlib")
	version, err := n.run(ctx, "-vV")
	if err != nil {
		return err
	}
	sdk := filepath.Join(n.dir, crate.sdk)
	key := n.key(crate.sdk, "library", string(version), crate.sdk)
	if text, ok := n.cache.get(key); ok && crate.sdk != "" {
		if err := os.WriteFile(library, text, 0o600); err != nil {
			return err
		}
	} else if crate.sdk != "" {
		_, err = n.run(ctx, slices.Concat(flags, []string{"--edition=2021", "--crate-name=starling_tool", "--crate-type=rlib",
			"--emit=link=" + library + ",dep-info=" + list, filepath.Join(sdk, "src", "lib.rs")})...)
		if err == nil {
			err = n.checkRead(list, sdk)
		}
		if err != nil {
			return err
		}
		if text, err := os.ReadFile(library); err == nil {
			n.cache.put(key, text)
		}
	}
	args := []string{"--edition=" + crate.edition, "--crate-name=tool", "--crate-type=cdylib", "--emit=link=" + n.out + ",dep-info=" + list}
	if crate.sdk != "" {
		args = append(args, "--extern=starling_tool="+library)
	}
	if _, err = n.run(ctx, slices.Concat(flags, args, []string{filepath.Join(n.dir, filepath.FromSlash(crate.source))})...); err != nil {
		return err
	}
	return n.checkRead(list, n.dir)
}

type crate struct {
	edition string
	source  string
	sdk     string // the folder of the SDK, or empty
}

var (
	cargoSection = regexp.MustCompile(`^\[+\s*([^\]]*?)\s*\]`)
	cargoKey     = regexp.MustCompile(`^([\w."-]+)\s*=\s*(.*)`)
	cargoEdition = regexp.MustCompile(`^\d*`)
	cargoPath    = regexp.MustCompile(`\bpath\s*=\s*["']([^"']+)["']`)
)

// readCargo reads what a build of the SDK and the tool needs of Cargo.toml, and refuses a
// tool that needs more: cargo would execute what other crates bring.
func (n *native) readCargo() (crate, error) {
	c := crate{edition: "2015", source: "src/lib.rs"}
	text, err := os.ReadFile(filepath.Join(n.dir, "Cargo.toml"))
	if err != nil {
		return c, err
	}
	section, needs := "", ""
	if _, build := n.files["build.rs"]; build {
		needs = "the program build.rs"
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if header := cargoSection.FindStringSubmatch(line); header != nil {
			section = strings.ReplaceAll(header[1], `"`, "")
		}
		match := cargoKey.FindStringSubmatch(line)
		if match == nil {
			match = []string{"", "", ""}
		}
		key, value := strings.Trim(match[1], `"`), strings.Trim(match[2], `"' `)
		dependency := ""
		switch {
		case section == "dependencies":
			dependency, _, _ = strings.Cut(key, ".")
		case strings.HasPrefix(section, "dependencies."):
			dependency = strings.TrimPrefix(section, "dependencies.")
		case section == "package" && key == "edition":
			c.edition = cargoEdition.FindString(value)
		case section == "package" && key == "build" && value != "false":
			needs = cmp.Or(needs, "the program "+value)
		case section == "lib" && key == "path":
			c.source = value
		case section == "lib" && strings.HasPrefix(key, "proc"):
			needs = cmp.Or(needs, "to be executed by the compiler")
		case strings.HasSuffix(section, "dependencies") && section != "dev-dependencies", section == "features":
			needs = cmp.Or(needs, "the section "+section+" of Cargo.toml")
		}
		switch {
		case dependency == "starling-tool":
			if match := cargoPath.FindStringSubmatch(line); match != nil {
				c.sdk = path.Clean(match[1])
			} else if key != "" && c.sdk == "" {
				needs = cmp.Or(needs, "the crate starling-tool from elsewhere than a path in the folder")
			}
		case dependency != "":
			needs = cmp.Or(needs, "the crate "+dependency)
		}
	}
	if c.sdk != "" && !filepath.IsLocal(c.sdk) {
		return c, n.outside(c.sdk)
	}
	if needs != "" {
		return c, &Error{Ref: n.ref, Reason: "the tool needs " + needs + ", and cargo would execute programs to build that; the host builds only the tool and the crate starling-tool",
			Hint: "if you trust the folder, build it yourself and run the module, in the folder: cargo build --release --target " + rustTarget + " && starling-host run target/" + rustTarget + "/release/*.wasm"}
	}
	return c, nil
}
