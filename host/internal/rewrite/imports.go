package rewrite

import (
	"fmt"
	"strings"

	"github.com/starling-host/starling/abi"
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
	var sig string
	switch module {
	case abi.Version:
		sig = abiImports[name]
	case abi.WASIModule:
		sig = wasiImports[name]
	}
	return Signature(sig), sig != ""
}

// AllowedImports returns every function for which [ImportType] returns true,
// in no order.
func AllowedImports() []Import {
	var all []Import
	for name, sig := range abiImports {
		all = append(all, Import{abi.Version, name, Signature(sig)})
	}
	for name, sig := range wasiImports {
		all = append(all, Import{abi.WASIModule, name, Signature(sig)})
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
	types := make([]wasm.ValType, len(s))
	for i := range s {
		types[i] = wasm.I32
		if s[i] == 'I' {
			types[i] = wasm.I64
		}
	}
	return types
}

var abiImports = map[string]string{
	abi.ImportNow:    ":I",
	abi.ImportRandom: ":I",
	abi.ImportHTTP:   "iiii:I",
}

// wasiImports are the functions of WASI snapshot preview 1, from its witx
// definition lowered to core types.
var wasiImports = map[string]string{
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
