//go:build linux

package registry_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/treetest"
)

// reach is a language, and its ways to take a file into a module. PATH stands for the file.
type reach struct {
	needs  string // a program of [treetest.Needs]
	secret string // the content of a source with the canary
	suffix string // of the file with that content
	source string // the file that TAKE is put into
	files  files  // a tool with folders below it, which builds as it is with TAKE removed
	ways   []string
}

// TestNothingOutsideIsInAModule tries, in each language, each way to take a file, with each name
// that leads to a file outside: absolute, with .., through a link to it, to its folder and to its
// folder's folder, and with source files beside it whose names look like parts of a list.
func TestNothingOutsideIsInAModule(t *testing.T) {
	bin, _ := filepath.Abs("../../../guest-sdk/as/node_modules/.bin")
	t.Setenv("PATH", os.Getenv("PATH")+":"+bin)
	emptyCache(t)
	const text = "static const char plain[] = \"plain\";"
	languages := map[string]reach{
		"C": {needs: "c",
			secret: `static const char *secret = "` + canary + `";`, suffix: ".h", source: "tool.c",
			files: files{"tool.c": "#include \"more/a.h\"\n#include <stdio.h>\nTAKE\n__attribute__((export_name(\"x\"))) const char *x(void) { return USE; }\n", "more/a.h": "#include \"../more/deep/b.h\"\n", "more/deep/b.h": text},
			ways: []string{"#include \"PATH\"", "#include <PATH>", "#import \"PATH\"", "#define F \"PATH\"\n#include F", "#include_next \"PATH\"", "#pragma clang system_header\n#include \"PATH\"",
				"#pragma clang module import \"PATH\"", "#pragma GCC dependency \"PATH\"\n#include \"PATH\"", "static const char secret[] = {\n#embed \"PATH\"\n};", "__asm__(\".incbin \\\"PATH\\\"\");", "#line 1 \"PATH\"\n#include \"PATH\"",
				"_Pragma(\"clang diagnostic ignored \\\"-Weverything\\\"\")\n#include \"PATH\""}},
		"Rust": {needs: "rust",
			secret: `pub static secret: &str = "` + canary + `";`, suffix: ".rs", source: "src/lib.rs",
			files: files{"Cargo.toml": "[package]\nname = \"t\"\nedition = \"2021\"\n", "src/lib.rs": "mod more;\n#[allow(unused_imports)]\nuse more::plain;\nTAKE\n#[no_mangle]\npub extern \"C\" fn x() -> usize { let s: &'static str = USE; s.as_ptr() as usize }\n",
				"src/more/mod.rs": "pub mod deep; pub use deep::plain;", "src/more/deep.rs": "#[allow(non_upper_case_globals)] pub static plain: &str = include_str!(\"../../data/a b.txt\");", "data/a b.txt": "plain"},
			ways: []string{"static secret: &str = include_str!(\"PATH\");", "static secret: &[u8] = include_bytes!(\"PATH\");", "include!(\"PATH\");", "#[path = \"PATH\"]\nmod m;\nuse m::secret;", "#[doc = include_str!(\"PATH\")]\npub static secret: &str = \"\";",
				"#[path = \"a\\n#b.rs\"]\nmod n;\nstatic secret: &str = include_str!(\"PATH\");", "std::arch::global_asm!(include_str!(\"PATH\"));", "static secret: &str = env!(\"SECRET\");", "static secret: &str = match option_env!(\"SECRET\") { Some(s) => s, None => \"\" };",
				"static secret: &str = concat!(include_str!(\"PATH\"));", "#[link(name = \"PATH\")] extern \"C\" {}\nstatic secret: &str = include_str!(concat!(\"PA\", \"TH\"));"}},
		"AssemblyScript": {needs: "node",
			secret: `export const secret = "` + canary + `";`, suffix: ".ts", source: "assembly/index.ts",
			files: files{"assembly/index.ts": "import { plain } from \"./more/a\";\nTAKE\nexport function x(): usize { return changetype<usize>(USE); }\nimport \"../sdk/host\";\n", "assembly/more/a.ts": "export { plain } from \"./deep/b\";", "assembly/more/deep/b.ts": "export const plain = \"plain\";",
				"sdk/host.ts": "export function abort(message: string | null, file: string | null, line: u32, column: u32): void { unreachable(); }\nexport function seed(): f64 { return 0; }\n"},
			ways: []string{"import { secret } from \"PATH\";", "export * from \"PATH\";", "import * as m from \"PATH\"; const secret = m.secret;"}},
		"Go": {
			secret: "package main\n\nconst secret = \"" + canary + "\"\n", suffix: ".go", source: "main.go",
			files: files{"go.mod": "module m\n\ngo 1.24\n", "main.go": "package main\n\nimport (\n\t_ \"embed\"\n\n\t\"m/more/deep\"\n)\n\nTAKE\n\nconst plain = deep.Plain\n\nfunc main() { println(USE) }\n", "more/deep/a.go": "package deep\n\nconst Plain = \"plain\"\n"},
			ways:  []string{"//go:embed PATH\nvar secret string", "//go:embed all:PATH\nvar secret string", "//line PATH:1\nvar secret = \"\"", "//go:linkname secret PATH\nvar secret string"}},
	}
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			if l.needs != "" {
				treetest.Needs(t, l.needs)
			}
			if name == "AssemblyScript" {
				treetest.NeedsNPM(t, "../../../guest-sdk/as")
			}
			dir := realDir(t)
			write := func(all files) {
				t.Helper()
				writeHostile(t, dir, all, strings.NewReplacer("OUTSIDE", filepath.Join(dir, "outside")))
			}
			build := func(use, take string) ([]byte, error) {
				write(files{"tool/" + l.source: strings.NewReplacer("TAKE", take, "USE", use).Replace(l.files[l.source])})
				m, err := registry.Open(t.Context(), filepath.Join(dir, "tool"))
				return m.Wasm, err
			}
			for name, text := range l.files {
				write(files{"tool/" + name: text})
			}
			write(files{"outside/secret" + l.suffix: l.secret, "outside/secret": l.secret, "tool/link" + l.suffix: "plain"})
			if err := os.Remove(filepath.Join(dir, "tool", "link"+l.suffix)); err != nil {
				t.Fatal(err)
			}
			if wasm, err := build("plain", ""); err != nil || !bytes.Contains(bytes.ReplaceAll(wasm, []byte{0}, nil), []byte("plain")) {
				t.Fatalf("an honest tool with folders does not build: %v", err)
			}
			t.Setenv("SECRET", canary)
			t.Setenv("CPATH", filepath.Join(dir, "outside"))
			t.Setenv("C_INCLUDE_PATH", filepath.Join(dir, "outside"))
			t.Setenv("RUSTFLAGS", "--cfg=x")
			t.Setenv("NODE_OPTIONS", "")
			outside := filepath.Join(dir, "outside", "secret"+l.suffix)
			up := strings.Repeat("../", 12) + strings.TrimPrefix(outside, "/")
			for _, link := range []files{nil, {"tool/link" + l.suffix: "->" + outside}, {"tool/src/link" + l.suffix: "->" + outside}, {"tool/assembly/link" + l.suffix: "->" + outside}, {"tool/away": "->" + filepath.Dir(outside)},
				{"tool/away2": "->" + dir}, {"tool/a\n#b" + l.suffix: l.secret, "tool/src/a\n#b.rs": ""}, {"tool/x\n#y.c": "#include \"" + outside + "\"\nconst char *leak(void) { return secret; }\n"}} {
				write(link)
				for i, way := range l.ways {
					for _, path := range []string{outside, up, "link" + l.suffix, "away/secret" + l.suffix, "away2/outside/secret" + l.suffix, "/proc/self/cwd" + outside, "/proc/self/root" + outside, "/proc/1/root" + outside, "//" + outside, "/etc/passwd", "secret" + l.suffix} {
						if i > 0 && (link != nil || path != outside) || link != nil && path != outside && !strings.Contains(path, "link") && !strings.Contains(path, "away") {
							continue // each way with one name, each name with one way, each link with the names that use it
						}
						take := strings.NewReplacer("PATH", path, `"PA", "TH"`, fmt.Sprintf("%q, %q", path[:1], path[1:])).Replace(way)
						wasm, err := build("secret", take)
						if bytes.Contains(bytes.ReplaceAll(wasm, []byte{0}, nil), []byte(canary)) || bytes.Contains(wasm, []byte("root:x:0:0")) {
							t.Errorf("the module holds what is outside of the folder, through %v and\n%s", link, take)
						}
						if err != nil && err.Error() == "" {
							t.Error("there is no reason")
						}
					}
				}
				for name := range link {
					if err := os.Remove(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
