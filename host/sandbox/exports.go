package sandbox

import (
	"fmt"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
)

// The exports that the host calls or reads.
type export struct {
	name     string
	kind     wasm.ExternKind
	t        wasm.FuncType
	optional bool
}

var (
	i32 = []wasm.ValType{wasm.I32}
	i64 = []wasm.ValType{wasm.I64}

	// toolExports are the exports of a starling:v1 tool.
	toolExports = []export{
		{name: abi.ExportMemory, kind: wasm.ExternMemory},
		{name: abi.ExportAlloc, t: wasm.FuncType{Params: i32, Results: i32}},
		{name: abi.ExportDescribe, t: wasm.FuncType{Results: i64}},
		{name: abi.ExportExecute, t: wasm.FuncType{Params: []wasm.ValType{wasm.I32, wasm.I32}, Results: i64}},
		{name: abi.ExportInitialize, optional: true},
		{name: abi.ExportWarmup, optional: true},
	}

	// commandExports are the exports of a WASI command.
	commandExports = []export{
		{name: abi.ExportMemory, kind: wasm.ExternMemory},
		{name: abi.ExportStart},
	}
)

// checkExports returns the kind of the module. It refuses a module that has all exports of neither
// kind.
func checkExports(info rewrite.Info) (string, error) {
	_, describes := info.Export(abi.ExportDescribe)
	_, executes := info.Export(abi.ExportExecute)
	_, starts := info.Export(abi.ExportStart)
	switch {
	case describes || executes:
		return abi.Version, checkAll(info, toolExports, "a "+abi.Version+" tool",
			"see spec/abi.md, section 3; the SDKs in guest-sdk export all of it")
	case starts:
		return abi.Command, checkAll(info, commandExports, "a WASI command", "")
	}
	return "", refuse(
		fmt.Sprintf("not a tool: it exports neither %s and %s nor %s", abi.ExportDescribe, abi.ExportExecute, abi.ExportStart),
		"a tool registers its functions with an SDK, as in the example that starling-host tool new writes, or is a program for wasip1; "+
			"a folder is built as a library, so give a program as its .wasm file")
}

func checkAll(info rewrite.Info, wanted []export, what, hint string) error {
	var wrong []string
	for _, want := range wanted {
		if problem := want.check(info); problem != "" {
			wrong = append(wrong, problem)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return refuse("not "+what+": "+strings.Join(wrong, ", "), hint)
}

// check returns the error in a module's export with this name, or "".
func (x export) check(info rewrite.Info) string {
	got, ok := info.Export(x.name)
	switch {
	case !ok && x.optional:
		return ""
	case !ok:
		return "it does not export " + x.name
	case got.Kind != x.kind:
		return fmt.Sprintf("its export %s is a %s, not a %s", x.name, got.Kind, x.kind)
	case x.kind == wasm.ExternFunc && !got.Type.Equal(x.t):
		return fmt.Sprintf("its export %s is %s, not %s", x.name, got.Type, x.t)
	}
	return ""
}

// preparation lists the exports that run before a call, in their order.
func preparation(info rewrite.Info, kind string) []string {
	var run []string
	if info.HasStart {
		run = append(run, rewrite.ExportStart)
	}
	if kind == abi.Command {
		return run
	}
	for _, name := range []string{abi.ExportInitialize, abi.ExportWarmup} {
		if _, ok := info.Export(name); ok {
			run = append(run, name)
		}
	}
	return run
}
