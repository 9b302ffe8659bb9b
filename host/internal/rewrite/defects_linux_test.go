package rewrite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/hostiletest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
)

// defect is something that wazero does with a module that it is given unseen: the
// process dies, or run returns an error. The gate or the rewriter is why it never
// happens here.
type defect struct {
	name   string
	module []byte
	run    func(b []byte) error
}

// harmless is what a process prints that neither died nor had an error.
const harmless = "survived: <nil>"

// defectMemory is what a process may have. It is plenty for modules of 100 bytes.
const defectMemory = 512 << 20

// defects of wazero 1.12, each seen with this version.
func defects() []defect {
	var all []defect
	for _, name := range []string{
		"parameters of a type", "imports", "functions", "tables", "globals", "exports",
		"element segments", "bodies", "data segments", "a name section of 2^32-1 names", "locals",
	} {
		if !strings.Contains(name, "2^32-1") {
			name += ", 2^32-1"
		}
		all = append(all, defect{name, hostileLoad(name), compileIt})
	}
	return append(all,
		defect{"locals, 2^27", hostileLoad("locals, 2^27"), compileIt},
		defect{"table entries, 2^27", hostileLoad("table entries, 2^27"), growthOf},
		defect{"a function without a type", hostileLoad("a function without a type"), compileIt},
		defect{"ref.func in a loop", refFuncLoop(), leakOf},
	)
}

// hostileLoad is a module of the hostile corpus.
func hostileLoad(name string) []byte {
	for _, l := range hostiletest.Loads() {
		if l.Name == name {
			return l.Modules()[0]
		}
	}
	panic("no hostile load is called " + name)
}

// refFuncRounds is how often the loop takes a reference.
const refFuncRounds = 1 << 20

// refFuncLoop takes a reference to itself in a loop, and drops it.
func refFuncLoop() []byte {
	loop := asm().Block(wasm.OpLoop, wasm.BlockEmpty).
		Index(wasm.OpRefFunc, 0).Op(wasm.OpDrop).
		Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpLocalTee, 0).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)
	m := wasmtest.Module{Funcs: []wasmtest.Func{{Export: "loop", Type: wasmtest.Type("i:"), Code: loop}}}
	return m.Bytes()
}

// compileIt ignores the error: to refuse a module is right.
func compileIt(b []byte) error {
	wazero.NewRuntime(context.Background()).CompileModule(context.Background(), b)
	return nil
}

// growthOf fails if an instance takes much memory.
func growthOf(b []byte) error {
	before := heap()
	m, err := wazero.NewRuntime(context.Background()).Instantiate(context.Background(), b)
	if grown := heap() - before; grown > 256<<20 {
		return fmt.Errorf("an instance of %d bytes", grown)
	}
	runtime.KeepAlive(m)
	return err
}

// leakOf calls the loop and fails if what it dropped is still there.
func leakOf(b []byte) error {
	m, err := wazero.NewRuntime(context.Background()).Instantiate(context.Background(), b)
	if err != nil {
		return err
	}
	before := heap()
	if _, err := m.ExportedFunction("loop").Call(context.Background(), refFuncRounds); err != nil {
		return err
	}
	left := heap() - before
	runtime.KeepAlive(m)
	if left > refFuncRounds {
		return fmt.Errorf("%d bytes are left", left)
	}
	return nil
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

const defectChild = "STARLING_DEFECT"

// TestDefectsOfTheEngine gives wazero the modules that the gate is there for, each
// in a process of its own with bounded memory, and fails on the day when one of
// them does no harm any more: then a reason for the gate is gone.
func TestDefectsOfTheEngine(t *testing.T) {
	if name := os.Getenv(defectChild); name != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: defectMemory, Max: defectMemory}); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(defects(), func(d defect) bool { return d.name == name })
		fmt.Println("survived:", defects()[i].run(defects()[i].module))
		return
	}
	slots := make(chan struct{}, 2)
	var group sync.WaitGroup
	defer group.Wait()
	for _, d := range defects() {
		d.stopped(t)
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if end := d.apart(t); strings.Contains(end, harmless) {
				t.Errorf("%s: the defect is gone: %q", d.name, end)
			}
		})
	}
}

// stopped checks that the defect is not met behind the gate: the module is refused,
// or does no harm as it is rewritten.
func (d defect) stopped(t *testing.T) {
	var refusal *Refusal
	result, err := Rewrite(work.Trusted(context.Background()), d.module, DefaultLimits(), Options{})
	if errors.As(err, &refusal) {
		return
	}
	if err == nil {
		_, err = wazero.NewRuntime(t.Context()).CompileModule(t.Context(), result.Wasm)
	}
	if err != nil {
		t.Errorf("%s: behind the gate: %v", d.name, err)
	}
}

// apart returns how a process ends that does it.
func (d defect) apart(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDefectsOfTheEngine$")
	cmd.Env = append(os.Environ(), defectChild+"="+d.name, "GOTRACEBACK=none")
	out, _ := cmd.CombinedOutput() // that it fails is what is expected
	return string(out[:min(len(out), 500)])
}
