package rewrite

import (
	"regexp"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/lazy"
)

// cure is a hint for the author of a module that was built for another host.
type cure struct {
	feature string                // the extension that the module uses
	imports func() *regexp.Regexp // or one of its imports: module, space, name
	text    string
}

// cures are all of them. The first that fits counts.
var cures = []cure{
	{feature: "SIMD", text: "build without SIMD: no -msimd128, -C target-feature=-simd128"},
	{feature: "threads", text: "build without threads and atomics, which need another target: wasm32-wasip1 without -threads, no -pthread, -C target-feature=-atomics"},
	{feature: "exception handling", text: "build without wasm exceptions: panic=abort, -fno-exceptions, for Emscripten -sSUPPORT_LONGJMP=0"},
	{feature: "tail calls", text: "build without -mtail-call"},
	{feature: "memory64", text: "build for wasm32, without -sMEMORY64"},
	{feature: "multiple memories", text: "a tool has one memory of its own: wasm-opt --multi-memory-lowering -O -o tool.wasm FILE"},
	{feature: "garbage collection", text: "the languages that need it (Kotlin, Dart, Java, Scala, OCaml) cannot make tools yet: build for linear memory, from Go, Rust, C or JavaScript"},
	{feature: "typed function references", text: "build for WebAssembly 2.0"},
	{feature: "extended constant expressions", text: "build without -mextended-const"},
	{feature: "custom page sizes", text: "build for pages of 64 KiB"},
	{feature: "stack switching", text: "build for WebAssembly 2.0"},
	{feature: "wide arithmetic", text: "build without -mwide-arithmetic"},
	{feature: "compact import section", text: "write each import with its module and name"},

	{imports: lazy.Regexp(`^starling:v[0-9]+ `), text: "it was built with a newer SDK: update starling-host, whose contract is " + abi.Version + ", or build the tool with an SDK for that"},
	{imports: lazy.Regexp(`^wbg |^__wbindgen|_bg\.(js|wasm) `), text: "it was built for a page by wasm-bindgen: build for --target wasm32-wasip1, or as a component for wasm32-wasip2, without wasm-pack and wasm-bindgen; crates such as getrandom need no feature js there"},
	{imports: lazy.Regexp(`^gojs |^go (runtime|syscall|debug)`), text: "it was built with GOOS=js: build with GOOS=wasip1 GOARCH=wasm, with TinyGo for -target=wasip1"},
	{imports: lazy.Regexp(`^wasi_unstable `), text: "it was built for WASI of 2019: build with a newer SDK, for wasm32-wasip1"},
	{imports: lazy.Regexp(`^wasix_|^wasi thread-spawn$`), text: "it was built for WASIX or for threads: build for wasm32-wasip1"},
	{imports: lazy.Regexp(`^extism:host/user `), text: "it calls functions of the program that it is a plug-in of: build it without them"},
	{imports: lazy.Regexp(`^(cm32p2\|)?[a-z0-9-]+:[a-z0-9/-]+/[a-z0-9-]+(@[^ ]*)? `), text: "it is the core of a component for WASI 0.2: give the component, as --target wasm32-wasip2 makes it, or make one: wasm-tools component new FILE -o tool.wasm, or jco new"},
	{imports: lazy.Regexp(`^env (_?emscripten|__syscall|__cxa_|invoke_|_abort_js|_embind)|^a [a-zA-Z]$`), text: "it was built by Emscripten for a page: build with emcc -sSTANDALONE_WASM, or with the WASI SDK"},
	{imports: lazy.Regexp(`^env (abort|seed)$`), text: mayImport + "; build AssemblyScript with --use abort= and, if it imports seed, --use seed=FILE/FUNCTION"},
	{imports: lazy.Regexp(`^env (memory|__memory_base|__indirect_function_table|__stack_pointer)$`), text: "it is a library or an object that is linked later: link it to one module, with a memory of its own (no --import-memory, -shared or -c)"},
	{imports: lazy.Regexp(``), text: mayImport},
}

const mayImport = "a tool may import " + abi.Version + " (now, random, http) and " + abi.WASIModule + " only"

// Strip is the hint for a module that is too large.
const Strip = "most of it may be debug information: wasm-tools strip FILE -o tool.wasm, or wasm-strip FILE; or build without, by cargo build --release with strip = true, go build -ldflags='-s -w', clang -Wl,--strip-debug"

// cureOfFeature returns the hint for a module that uses an extension, or "".
func cureOfFeature(feature string) string {
	for _, c := range cures {
		if feature != "" && c.feature == feature {
			return c.text
		}
	}
	return ""
}

// cureOfImports returns the hint for a module with these imports, none of which the host provides.
func cureOfImports(imports []string) string {
	for _, c := range cures {
		for _, im := range imports {
			if c.imports != nil && c.imports().MatchString(im) {
				return c.text
			}
		}
	}
	return ""
}
