//go:build unix

package registry_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/internal/treetest"
)

const canary = "Canary0fTheHost"

// hostileNative is a folder, and what its build must say, or nothing if it must succeed.
type hostileNative struct {
	files files
	want  string
}

// tryHostile builds folders that reach for what lies around them. No module may hold any of
// it, and nothing that a folder brings may be executed.
func tryHostile(t *testing.T, cases map[string]hostileNative) {
	t.Helper()
	machine := realDir(t)
	executed := filepath.Join(machine, "EXECUTED")
	t.Setenv("SECRET", canary)
	t.Setenv("PATH", ".:./bin:"+os.Getenv("PATH"))
	emptyCache(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := realDir(t)
			all := files{"outside/secret.txt": canary, "outside/code.rs": `pub const TEXT: &str = "` + canary + `";`, "outside/secret.h": "static const char secret[] = \"" + canary + "\";\n",
				"outside/secret.ts": "export const secret = \"" + canary + "\"\n"}
			for name, text := range c.files {
				all["tool/"+name] = text
			}
			writeHostile(t, dir, all, strings.NewReplacer("EXECUTED", executed, "OUTSIDE", filepath.Join(dir, "outside")))
			m, err := registry.Open(t.Context(), filepath.Join(dir, "tool"))
			if bytes.Contains(m.Wasm, []byte(canary)) {
				t.Error("the module holds what is outside of the folder")
			}
			if failed := (*registry.Error)(nil); c.want == "" && err != nil {
				t.Errorf("the folder does not build: %v", err)
			} else if c.want != "" && (!errors.As(err, &failed) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := os.Stat(executed); err == nil {
				t.Fatal("the build executed something of the folder")
			}
		})
	}
}

// sameInTwoFolders checks that a tool has the same module wherever its folder is.
func sameInTwoFolders(t *testing.T, all files) {
	t.Helper()
	var modules [2][]byte
	for i := range modules {
		emptyCache(t)
		dir := filepath.Join(t.TempDir(), strings.Repeat("long", 5*i), "x")
		writeHostile(t, dir, all, strings.NewReplacer())
		modules[i] = open(t, dir).Wasm
	}
	if !bytes.Equal(modules[0], modules[1]) {
		t.Error("the module depends on the folder")
	}
	if bytes.Contains(modules[0], []byte(os.TempDir()+"/")) {
		t.Error("the module holds a path of this machine")
	}
}

// TestNoCompiler checks that a build without a compiler says which one, and how to get it.
func TestNoCompiler(t *testing.T) {
	emptyCache(t)
	t.Setenv("PATH", realDir(t))
	for mark, want := range map[string][2]string{
		"Cargo.toml":        {"building a folder in Rust needs rustc, and there is none in PATH", "rustup"},
		"tool.c":            {"building a folder in C needs clang, and there is none in PATH", "install"},
		"assembly/index.ts": {"building a folder in AssemblyScript needs Node, and there is no node in PATH", "install"},
	} {
		_, err := registry.Open(t.Context(), write(t, files{mark: ""}))
		if failed := (*registry.Error)(nil); !errors.As(err, &failed) || failed.Reason != want[0] || !strings.Contains(failed.Hint, want[1]) {
			t.Errorf("%s: got %v, want %q", mark, err, want)
		}
	}
}

// TestNativeCache checks that a module is kept, whatever a run writes beside the source.
func TestNativeCache(t *testing.T) {
	treetest.Needs(t, "c")
	emptyCache(t)
	dir := write(t, files{"tool.c": "int x;", "cases/a.txtar": ""})
	builds := 0
	ctx := registry.WithProgress(t.Context(), func(string) func() { builds++; return func() {} })
	for i, change := range []struct{ name, text string }{{"starling.db", "x"}, {"starling.db-wal", "x"}, {"cases/a.txtar", "x"}, {"tool.c", "int y;"}, {"x.h", ""}} {
		if _, err := registry.Open(ctx, dir); err != nil {
			t.Fatal(err)
		}
		if want := max(1, i-2); builds != want {
			t.Errorf("before %s: %d builds, want %d", change.name, builds, want)
		}
		if err := os.WriteFile(filepath.Join(dir, change.name), []byte(change.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHostileRust(t *testing.T) {
	treetest.Needs(t, "rust")
	const manifest = "[package]\nname = \"t\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"
	rust := func(source string, more ...string) files {
		all := files{"Cargo.toml": manifest, "src/lib.rs": source + "\n#[no_mangle]\npub extern \"C\" fn address() -> *const u8 { TEXT.as_ptr() }\n"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	const plain = `static TEXT: &str = "plain";`
	const runs = "#!/bin/sh\necho > EXECUTED\n"
	const tool = "[dependencies]\n"
	tryHostile(t, map[string]hostileNative{
		"plain":                  {rust(plain), ""},
		"include_str":            {rust(`static TEXT: &str = include_str!("OUTSIDE/secret.txt");`), "which is outside of its folder"},
		"include_bytes with ..":  {rust(`static TEXT: &[u8] = include_bytes!(concat!("../../outside/", "secret.txt"));`), "couldn't read"},
		"include":                {rust(`include!("OUTSIDE/code.rs"); `), "which is outside of its folder"},
		"a module by its path":   {rust("#[path = \"OUTSIDE/code.rs\"]\nmod m;\nuse m::TEXT;"), "which is outside of its folder"},
		"a link":                 {rust(`static TEXT: &str = include_str!("a.txt");`, "src/a.txt", "->OUTSIDE/secret.txt"), "which is outside of its folder"},
		"a file of the folder":   {rust(`static TEXT: &str = include_str!("../a b.txt");`, "a b.txt", "text"), ""},
		"a variable":             {rust(`static TEXT: &str = env!("SECRET");`), "not defined"},
		"assembly":               {rust("#![feature(asm_experimental_arch)]\n" + plain + "\nstd::arch::global_asm!(\".incbin \\\"OUTSIDE/secret.txt\\\"\");"), "the tool does not build"},
		"build.rs":               {rust(plain, "build.rs", "fn main() {}"), "build.rs"},
		"another build program":  {rust(plain, "Cargo.toml", manifest+"build = \"b.rs\"\n"), "a program that runs during the build"},
		"a crate":                {rust(plain, "Cargo.toml", manifest+tool+"serde = \"1\"\n"), "the crate serde"},
		"a crate in a section":   {rust(plain, "Cargo.toml", manifest+"[dependencies.serde]\nversion = \"1\"\n"), "the crate serde"},
		"a crate to build":       {rust(plain, "Cargo.toml", manifest+"[build-dependencies]\ncc = \"1\"\n"), "build-dependencies"},
		"a macro":                {rust(plain, "Cargo.toml", manifest+"[lib]\nproc-macro = true\n"), "a program that runs during the build"},
		"an SDK outside":         {rust(plain, "Cargo.toml", manifest+tool+"starling-tool = { path = \"../outside\" }\n"), "outside of its folder"},
		"an SDK from a registry": {rust(plain, "Cargo.toml", manifest+tool+"starling-tool = \"1\"\n"), "from elsewhere"},
		"an error":               {rust(plain + "\nfn f() -> u8 { \"\" }"), "/tool/src/lib.rs:2:16"},
		"no edition":             {rust(plain, "Cargo.toml", "[package]\nname = \"a\"\n"), ""},
		"no value":               {rust(plain, "Cargo.toml", "[package]\nedition = \n"), "Cargo.toml: toml: line 2"},
		"programs of the folder": {rust(plain, ".cargo/config.toml", "[build]\nrustc-wrapper = \"./bin/rustc\"\n", "bin/rustc", runs, "rustc", runs, "wasm-ld", runs, "rust-lld", runs,
			"bin/rust-lld", runs, "rust-toolchain.toml", "[toolchain]\npath = \".\"\n"), ""},
	})
	t.Run("the same in two folders", func(t *testing.T) {
		sameInTwoFolders(t, rust(plain+"\n#[no_mangle]\npub extern \"C\" fn f(n: u32) { if n > 3 { panic!(\"four\") } }"))
	})
}

func TestHostileC(t *testing.T) {
	treetest.Needs(t, "c")
	c := func(source string, more ...string) files {
		all := files{"tool.c": source + "\n__attribute__((export_name(\"address\"))) const char *address(void) { return secret; }\n"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	const plain = "static const char *secret = \"plain\";"
	const runs = "#!/bin/sh\necho > EXECUTED\n"
	tryHostile(t, map[string]hostileNative{
		"plain":                  {c("#include <stdio.h>\n#include <stdint.h>\n#include \"a b.h\"\n"+plain, "a b.h", "", "x_test.c", "#error test", "more/x.c", "#error more"), ""},
		"several files":          {c("extern const char *secret;", "other.c", "const char *secret = \"plain\";"), ""},
		"#include":               {c("#include \"OUTSIDE/secret.h\""), "which is outside of its folder"},
		"#include by a macro":    {c("#define FILE \"OUTSIDE/secret.h\"\n#include FILE"), "which is outside of its folder"},
		"#include <> with ..":    {c("#include </../OUTSIDE/secret.h>"), "which is outside of its folder"},
		"#import":                {c("#import \"OUTSIDE/secret.h\""), "which is outside of its folder"},
		"#include with ..":       {c("#include \"../outside/secret.h\""), "file not found"},
		"a link":                 {c("#include \"a.h\"", "a.h", "->../outside/secret.h"), "which is outside of its folder"},
		"assembly":               {c("extern const char secret[];\n__asm__(\".data\\nsecret:\\n.inc\" \"bin \\\"OUTSIDE/secret.txt\\\"\\n\");"), "assembly is disabled"},
		"the date":               {c("static const char *secret = __DATE__;"), "date"},
		"an error":               {c("int x = y;" + plain), "/tool/tool.c:1:9: error"},
		"an implicit function":   {c(plain + "int f(void) { return g(); }"), "/tool/tool.c:1:58: error"},
		"a number for a pointer": {c(plain + "const char *f(void) { return 5; }"), "/tool/tool.c:1:66: error"},
		"an undefined function":  {c(plain + "void f(void);\n__attribute__((export_name(\"g\"))) void g(void) { f(); }"), "undefined symbol: f"},
		"programs of the folder": {c(plain, "clang", runs, "wasm-ld", runs, "bin/wasm-ld", runs, "Makefile", "all:\n\techo > EXECUTED\n", ".clang", "x", "clang.cfg", "-include OUTSIDE/secret.h"), ""},
	})
	t.Run("the same in two folders", func(t *testing.T) {
		sameInTwoFolders(t, c("static const char *secret = __FILE__;"))
	})
}

func TestHostileAssemblyScript(t *testing.T) {
	bin, err := filepath.Abs("../../../guest-sdk/as/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	treetest.NeedsNPM(t, filepath.Dir(filepath.Dir(bin)))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	asc := func(source string, more ...string) files {
		all := files{"assembly/index.ts": source + "\nexport function address(): usize { return changetype<usize>(secret); }\nimport \"../sdk/host\";\n",
			"sdk/host.ts": "export function abort(message: string | null, file: string | null, line: u32, column: u32): void { unreachable(); }\nexport function seed(): f64 { return 0; }\n"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	const plain = "const secret = \"plain\";"
	const runs = "#!/bin/sh\necho > EXECUTED\n"
	const program = "import { writeFileSync } from 'node:fs'; writeFileSync('EXECUTED', '');"
	tryHostile(t, map[string]hostileNative{
		"plain":                  {asc(plain), ""},
		"import":                 {asc("import { secret } from \"OUTSIDE/secret\";"), "not found"},
		"import with ..":         {asc("import { secret } from \"../../outside/secret\";"), "not found"},
		"a link":                 {asc("import { secret } from \"./a\";", "assembly/a.ts", "->OUTSIDE/secret.ts"), "which is outside of its folder"},
		"a module":               {asc("import { secret } from \"m\";", "node_modules/m/index.ts", "export const secret = \"m\"", "node_modules/m/package.json", "{}"), "not found"},
		"a transform":            {asc(plain, "asconfig.json", `{"options":{"transform":["./t.mjs"]}}`, "t.mjs", program), "names a transform"},
		"a hidden transform":     {asc(plain, "asconfig.json", `{"options":{"\u0074ransform":["./t.mjs"]},"extends":"./b.json"}`, "b.json", `{"options":{"transform":["./t.mjs"]}}`, "t.mjs", program), ""},
		"an error":               {asc(plain + "\nlet x: i32 = \"\";"), "/tool/assembly/index.ts(2,14)"},
		"no source":              {files{"asconfig.json": "{}"}, "no assembly/index.ts"},
		"programs of the folder": {asc(plain, "asc", runs, "node", runs, "bin/node", runs, "bin/asc", runs, "node_modules/.bin/asc", runs, "package.json", `{"scripts":{"prepare":"echo > EXECUTED"},"type":"commonjs"}`), ""},
	})
	t.Run("the same in two folders", func(t *testing.T) {
		sameInTwoFolders(t, asc("const secret = \"plain\"; export function f(n: i32): i32 { assert(n < 3, \"n\"); return n }"))
	})
}
