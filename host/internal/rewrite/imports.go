package rewrite

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
)

// Import is a function that a module may import, or does.
type Import struct {
	Module, Name string
	Type         wasm.FuncType
}

// ImportType returns the type of a function that a module may import, and
// whether there is such a function: the three of the contract and the 46 of
// WASI preview 1.
func ImportType(module, name string) (wasm.FuncType, bool) {
	sig := imports[module][name]
	return Signature(sig), sig != ""
}

// AllowedImports returns every function for which [ImportType] returns true,
// in no order.
func AllowedImports() []Import {
	var all []Import
	for module, functions := range imports {
		for name, sig := range functions {
			all = append(all, Import{module, name, Signature(sig)})
		}
	}
	return all
}

// Signature reads a type written as letters: i for i32, I for i64, parameters
// before the colon and results after it.
func Signature(s string) wasm.FuncType {
	params, results, _ := strings.Cut(s, ":")
	return wasm.FuncType{Params: letters(params), Results: letters(results)}
}

func letters(s string) []wasm.ValType {
	return lists.Map([]byte(s), func(letter byte) wasm.ValType { return map[byte]wasm.ValType{'i': wasm.I32, 'I': wasm.I64}[letter] })
}

// imports are the functions of the contract, and those of WASI snapshot preview 1, from its witx
// definition lowered to core types.
var imports = map[string]map[string]string{
	abi.Version: {
		abi.ImportNow:    ":I",
		abi.ImportRandom: ":I",
		abi.ImportHTTP:   "iiii:I",
	},
	abi.WASIModule: {
		"args_get":                "ii:i",
		"args_sizes_get":          "ii:i",
		"clock_res_get":           "ii:i",
		"clock_time_get":          "iIi:i",
		"environ_get":             "ii:i",
		"environ_sizes_get":       "ii:i",
		"fd_advise":               "iIIi:i",
		"fd_allocate":             "iII:i",
		"fd_close":                "i:i",
		"fd_datasync":             "i:i",
		"fd_fdstat_get":           "ii:i",
		"fd_fdstat_set_flags":     "ii:i",
		"fd_fdstat_set_rights":    "iII:i",
		"fd_filestat_get":         "ii:i",
		"fd_filestat_set_size":    "iI:i",
		"fd_filestat_set_times":   "iIIi:i",
		"fd_pread":                "iiiIi:i",
		"fd_prestat_dir_name":     "iii:i",
		"fd_prestat_get":          "ii:i",
		"fd_pwrite":               "iiiIi:i",
		"fd_read":                 "iiii:i",
		"fd_readdir":              "iiiIi:i",
		"fd_renumber":             "ii:i",
		"fd_seek":                 "iIii:i",
		"fd_sync":                 "i:i",
		"fd_tell":                 "ii:i",
		"fd_write":                "iiii:i",
		"path_create_directory":   "iii:i",
		"path_filestat_get":       "iiiii:i",
		"path_filestat_set_times": "iiiiIIi:i",
		"path_link":               "iiiiiii:i",
		"path_open":               "iiiiiIIii:i",
		"path_readlink":           "iiiiii:i",
		"path_remove_directory":   "iii:i",
		"path_rename":             "iiiiii:i",
		"path_symlink":            "iiiii:i",
		"path_unlink_file":        "iii:i",
		"poll_oneoff":             "iiii:i",
		"proc_exit":               "i:",
		"proc_raise":              "i:i",
		"random_get":              "ii:i",
		"sched_yield":             ":i",
		"sock_accept":             "iii:i",
		"sock_recv":               "iiiiii:i",
		"sock_send":               "iiiii:i",
		"sock_shutdown":           "ii:i",
	},
}

// lookup finds the type of an import; it is [ImportType] outside of tests.
type lookup func(module, name string) (wasm.FuncType, bool)

// maxListed bounds the text of a refusal, whose names are the module's.
const maxListed = 32

// checkImports refuses foreign imports, all in one message: a module that was
// built for another host usually has many.
func checkImports(m *wasm.Module, l Limits, allowed lookup) error {
	var foreign []string
	var names []string
	at, more := -1, 0
	for i := range m.Imports {
		im := &m.Imports[i]
		if err := atMost("bytes of an import name", im.Offset, uint64(max(len(im.Module), len(im.Name))), uint64(l.NameBytes)); err != nil {
			return err
		}
		why := foreignImport(m, im, allowed)
		switch {
		case why == "":
			continue
		case len(foreign) < maxListed:
			foreign = append(foreign, why)
		default:
			more++
		}
		if at < 0 {
			at = im.Offset
		}
		names = append(names, im.Module[:min(len(im.Module), 100)]+" "+im.Name[:min(len(im.Name), 100)])
	}
	if more > 0 {
		foreign = append(foreign, fmt.Sprintf("and %d more", more))
	}
	if len(foreign) == 0 {
		return nil
	}
	return refuse(at, cureOfImports(names), "it asks for what this host does not have: %s", strings.Join(foreign, ", "))
}

// foreignImport returns the import in words when it is not allowed.
func foreignImport(m *wasm.Module, im *wasm.Import, allowed lookup) string {
	name := fmt.Sprintf("%q %q", im.Module, im.Name)
	if im.Kind != wasm.ExternFunc {
		return name + " (" + im.Kind.String() + ")"
	}
	want, ok := allowed(im.Module, im.Name)
	if !ok {
		return name
	}
	if got := m.Types[im.Type]; !want.Equal(got) {
		return fmt.Sprintf("%s as %s, which is %s", name, got, want)
	}
	return ""
}

// cureOfFeature has the hints for the author of a module that uses an extension, by its name.
var cureOfFeature = map[string]string{
	"SIMD":                          "build without SIMD: no -msimd128, -C target-feature=-simd128",
	"threads":                       "build without threads and atomics, which need another target: wasm32-wasip1 without -threads, no -pthread, -C target-feature=-atomics",
	"exception handling":            "build without wasm exceptions: panic=abort, -fno-exceptions, for Emscripten -sSUPPORT_LONGJMP=0",
	"tail calls":                    "build without -mtail-call",
	"memory64":                      "build for wasm32, without -sMEMORY64",
	"multiple memories":             "a tool has one memory of its own: wasm-opt --multi-memory-lowering -O -o tool.wasm FILE",
	"garbage collection":            "the languages that need it (Kotlin, Dart, Java, Scala, OCaml) cannot make tools yet: build for linear memory, from Go, Rust, C or JavaScript",
	"typed function references":     "build for WebAssembly 2.0",
	"extended constant expressions": "build without -mextended-const",
	"custom page sizes":             "build for pages of 64 KiB",
	"stack switching":               "build for WebAssembly 2.0",
	"wide arithmetic":               "build without -mwide-arithmetic",
	"compact import section":        "write each import with its module and name",
}

// cures are the hints for the author of a module that was built for another host, by one of its
// imports: module, space, name. The first that fits counts.
var cures = []struct {
	imports func() *regexp.Regexp
	text    string
}{
	{lazy.Regexp(`^starling:v[0-9]+ `), "it was built with a newer SDK: update starling-host, whose contract is " + abi.Version + ", or build the tool with an SDK for that"},
	{lazy.Regexp(`^wbg |^__wbindgen|_bg\.(js|wasm) `), "it was built for a page by wasm-bindgen: build for --target wasm32-wasip1, or as a component for wasm32-wasip2, without wasm-pack and wasm-bindgen; crates such as getrandom need no feature js there"},
	{lazy.Regexp(`^gojs |^go (runtime|syscall|debug)`), "it was built with GOOS=js: build with GOOS=wasip1 GOARCH=wasm, with TinyGo for -target=wasip1"},
	{lazy.Regexp(`^wasi_unstable `), "it was built for WASI of 2019: build with a newer SDK, for wasm32-wasip1"},
	{lazy.Regexp(`^wasix_|^wasi thread-spawn$`), "it was built for WASIX or for threads: build for wasm32-wasip1"},
	{lazy.Regexp(`^extism:host/user `), "it calls functions of the program that it is a plug-in of: build it without them"},
	{lazy.Regexp(`^(cm32p2\|)?[a-z0-9-]+:[a-z0-9/-]+/[a-z0-9-]+(@[^ ]*)? `), "it is the core of a component for WASI 0.2: give the component, as --target wasm32-wasip2 makes it, or make one: wasm-tools component new FILE -o tool.wasm, or jco new"},
	{lazy.Regexp(`^env (_?emscripten|__syscall|__cxa_|invoke_|_abort_js|_embind)|^a [a-zA-Z]$`), "it was built by Emscripten for a page: build with emcc -sSTANDALONE_WASM, or with the WASI SDK"},
	{lazy.Regexp(`^env (abort|seed)$`), mayImport + "; build AssemblyScript with --use abort= and, if it imports seed, --use seed=FILE/FUNCTION"},
	{lazy.Regexp(`^env (memory|__memory_base|__indirect_function_table|__stack_pointer)$`), "it is a library or an object that is linked later: link it to one module, with a memory of its own (no --import-memory, -shared or -c)"},
	{lazy.Regexp(``), mayImport},
}

const mayImport = "a tool may import " + abi.Version + " (now, random, http) and " + abi.WASIModule + " only"

// Strip is the hint for a module that is too large.
const Strip = "most of it may be debug information: wasm-tools strip FILE -o tool.wasm, or wasm-strip FILE; or build without, by cargo build --release with strip = true, go build -ldflags='-s -w', clang -Wl,--strip-debug"

// cureOfImports returns the hint for a module with these imports, none of which the host provides.
func cureOfImports(imports []string) string {
	for _, c := range cures {
		for _, im := range imports {
			if c.imports().MatchString(im) {
				return c.text
			}
		}
	}
	return ""
}
