package rewrite

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// Mutants come in families of one parent, which bounds the work that is slow
// for large parents.
const (
	smallMutant = 64 << 10 // bytes; smaller mutants are run as well
	largeEvery  = 5000     // every so many mutants one has a large parent
	mutantData  = 1 << 30  // bytes of memory that a process of mutants may have
	mutantChild = "STARLING_MUTANTS"
	mutantTime  = 4 * time.Minute // of a process, for slow machines; it takes half a minute
)

// TestMutants changes real modules at random, 5,000 times (STARLING_NIGHTLY: 100,000): the engine's own
// tests, official and regressions, and Go tools. None of them kills the loader. A mutant that the gate
// accepts compiles or is refused by the engine, and small ones behave the same on both engines, with the
// same fuel, as without a meter. It happens in processes of their own, with bounded memory, so that a
// death has a number: [mutant] makes its module again.
func TestMutants(t *testing.T) {
	if job := os.Getenv(mutantChild); job != "" {
		breed(t, job)
		return
	}
	n := treetest.Count(1_000, 5_000, 100_000)
	spec := specRoot(t)
	tools := t.TempDir()
	if !testing.Short() {
		if err := os.WriteFile(filepath.Join(tools, "goguest.wasm"), goGuest(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const processes = 2
	var total brood
	var mu sync.Mutex
	var group sync.WaitGroup
	for p := range processes {
		group.Go(func() {
			got := breedApart(t, fmt.Sprintf("%d %d %d", p, processes, n), filepath.Dir(filepath.Dir(filepath.Dir(spec))), tools)
			mu.Lock()
			defer mu.Unlock()
			total.add(got)
		})
	}
	group.Wait()
	t.Logf("%+v", total)
	if done := total.Refused + total.Invalid + total.Foreign + total.Ran + total.Compiled; !t.Failed() && done != n {
		t.Errorf("%d of %d mutants were looked at", done, n)
	}
	if total.Ran < n/20 {
		t.Errorf("only %d of %d mutants run: the parents or the changes are not what they were", total.Ran, n)
	}
}

// brood counts what became of mutants.
type brood struct {
	Refused  int // by the gate
	Invalid  int // accepted by the gate and refused by the engine, original and metered
	Foreign  int // valid, and importing what these tests do not have
	Ran      int
	Compiled int // too large to be run
}

func (b *brood) add(c brood) {
	b.Refused, b.Invalid, b.Foreign = b.Refused+c.Refused, b.Invalid+c.Invalid, b.Foreign+c.Foreign
	b.Ran, b.Compiled = b.Ran+c.Ran, b.Compiled+c.Compiled
}

// breedApart does a job in a process of its own.
func breedApart(t *testing.T, job string, folders ...string) brood {
	ctx, cancel := context.WithTimeout(t.Context(), mutantTime)
	defer cancel()
	progress := filepath.Join(t.TempDir(), strings.ReplaceAll(job, " ", "-"))
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestMutants$", "-test.short="+strconv.FormatBool(testing.Short()))
	cmd.Env = append(os.Environ(), mutantChild+"="+strings.Join(append([]string{job, progress}, folders...), "\n"))
	out, err := cmd.CombinedOutput()
	at, _ := os.ReadFile(progress)
	var b brood
	if err != nil {
		t.Errorf("the process ended at mutant %d: %v\n%s", number(at), err, out[:min(len(out), 4<<10)])
	} else if err := json.Unmarshal(at, &b); err != nil {
		t.Errorf("the process left no count: %v\n%s", err, out)
	}
	return b
}

// number returns the progress that a process has written.
func number(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// breed is the process's work: every mutant whose number is its own. Before
// each it writes the number down.
func breed(t *testing.T, job string) {
	boundData(mutantData)
	lines := strings.Split(job, "\n")
	var first, step, n uint64
	if _, err := fmt.Sscan(lines[0], &first, &step, &n); err != nil {
		t.Fatal(err)
	}
	progress, err := os.Create(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	f := nursery{comparison: newComparison(t)}
	f.gather(t, lines[2:])
	for i := first; i < n; i += step {
		if _, err := progress.WriteAt(binary.LittleEndian.AppendUint64(nil, i), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.raise(i); err != nil {
			t.Errorf("mutant %d: %v", i, err)
		}
	}
	if err := errors.Join(progress.Truncate(0), progress.Close()); err != nil {
		t.Fatal(err)
	}
	count, _ := json.Marshal(f.brood)
	if err := os.WriteFile(lines[1], count, 0o600); err != nil {
		t.Fatal(err)
	}
}

// nursery makes mutants and classifies them.
type nursery struct {
	brood
	*comparison
	small, large, wrong [][]byte // the parents: valid ones that the gate accepts, and the rest
}

// gather reads the parents: all modules below the folders, in an order that does
// not depend on where these are.
func (f *nursery) gather(t *testing.T, folders []string) {
	for _, folder := range folders {
		err := fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".wasm" {
				return err
			}
			b, err := os.ReadFile(filepath.Join(folder, path))
			switch {
			case !f.accepts(b):
				f.wrong = append(f.wrong, b)
			case len(b) > smallMutant:
				f.large = append(f.large, b)
			default:
				f.small = append(f.small, b)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// accepts reports whether gate and engine do.
func (f *nursery) accepts(b []byte) bool {
	res, err := Rewrite(work.Trusted(context.Background()), b, DefaultLimits(), Options{MemoryPages: observedPages})
	if err != nil {
		return false
	}
	compiled, err := f.interpreter.r.CompileModule(context.Background(), res.Wasm)
	return err == nil && compiled.Close(context.Background()) == nil
}

// mutant makes the module of a number.
func (f *nursery) mutant(n uint64) []byte {
	r := rand.New(rand.NewPCG(n, 3))
	parents := f.small
	switch {
	case n%largeEvery < 2 && len(f.large) > 0:
		parents = f.large
	case n%8 == 0:
		parents = f.wrong
	}
	b := slices.Clone(parents[r.IntN(len(parents))])
	for range 1 + r.IntN(8)/6 {
		b = mutate(b, f.small[r.IntN(len(f.small))], r)
	}
	return b
}

// raise takes a mutant through as many steps as it passes.
func (f *nursery) raise(n uint64) error {
	b := f.mutant(n)
	res, err := Rewrite(work.Trusted(context.Background()), b, DefaultLimits(), Options{MemoryPages: observedPages, Depth: observedDepth})
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		f.Refused++
		return nil
	case err != nil:
		return fmt.Errorf("%v is no refusal", err)
	}
	original, err := withoutCustom(b)
	if err != nil {
		return err
	}
	valid, err := f.compiles(original, res.Wasm)
	switch {
	case err != nil:
		return err
	case !valid:
		f.Invalid++
	case len(b) > smallMutant:
		f.Compiled++
	case !known(res.Info.Imports):
		f.Foreign++
	default:
		f.Ran++
		calls := callsOf(b, rand.New(rand.NewPCG(n, 4)))
		return f.run(program{metered: b, original: original, calls: calls[:min(len(calls), 6)]}, res)
	}
	return nil
}

// run compares the engines, and also the original if its bits are determined:
// without floats.
func (f *nursery) run(p program, res *Result) error {
	seen, err := f.agree(p, res)
	if err != nil || slices.Contains(res.Info.Features, featureNames[0]) {
		return err
	}
	return seen.sameAs(f.interpreter, p)
}

// withoutCustom drops the custom sections. The engine decodes the names in them,
// and trusts their counts.
func withoutCustom(b []byte) ([]byte, error) {
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		return nil, err
	}
	m.DropCustom()
	return m.Encode(), nil
}

// compiles reports whether a module is valid; the engine has to judge the
// original and its rewritten form alike.
func (f *nursery) compiles(original, metered []byte) (bool, error) {
	ctx := context.Background()
	plain, err := f.interpreter.r.CompileModule(ctx, original)
	if err == nil {
		err = plain.Close(ctx)
	}
	compiled, errMetered := f.compiler.r.CompileModule(ctx, metered)
	if errMetered == nil {
		errMetered = compiled.Close(ctx)
	}
	_, errMachine := machine.Translate(context.Background(), metered, GlobalFuel)
	if (err == nil) != (errMetered == nil) || (err == nil) != (errMachine == nil) {
		return false, fmt.Errorf("original: %v, metered: %v, on the machine: %v", err, errMetered, errMachine)
	}
	return err == nil, nil
}

// known reports whether observers have the imports.
func known(imports []Import) bool {
	return !slices.ContainsFunc(imports, func(im Import) bool {
		return !slices.ContainsFunc(observedImports, func(o wasmtest.Import) bool {
			return o.Module == im.Module && o.Name == im.Name && o.Type.Equal(im.Type)
		})
	})
}

// mutate changes a module in one way: its raw bytes, or the bytes of one
// section or one function, whose sizes then still agree.
func mutate(b, other []byte, r *rand.Rand) []byte {
	m, err := wasm.Split(b)
	if err != nil || len(m.Sections) == 0 || r.IntN(4) == 0 {
		return scramble(b, other, r)
	}
	sections := make([][]byte, len(m.Sections))
	for i, s := range m.Sections {
		sections[i] = wasmtest.Section(s.ID, s.Body)
	}
	i := r.IntN(len(sections))
	switch s := m.Sections[i]; r.IntN(8) {
	case 0:
		sections = slices.Delete(sections, i, i+1)
	case 1:
		sections = slices.Insert(sections, r.IntN(len(sections)+1), sections[i])
	default:
		body := slices.Clone(s.Body)
		if s.ID == wasm.SectionCode && r.IntN(4) > 0 {
			body = mutateFunction(body, other, r)
		} else {
			body = scramble(body, other, r)
		}
		sections[i] = wasmtest.Section(s.ID, body)
	}
	return append([]byte(wasmtest.Header), bytes.Join(sections, nil)...)
}

// mutateFunction changes one function of a code section.
func mutateFunction(section, other []byte, r *rand.Rand) []byte {
	reader := wasm.NewReader(section, 0, len(section))
	var bodies [][]byte
	for range reader.U32() {
		body := reader.Bytes(reader.U32())
		if reader.Err() != nil {
			return scramble(section, other, r)
		}
		bodies = append(bodies, body)
	}
	if len(bodies) == 0 {
		return scramble(section, other, r)
	}
	i := r.IntN(len(bodies))
	if bodies[i] = slices.Clone(bodies[i]); r.IntN(4) == 0 {
		bodies[i] = scramble(bodies[i], other, r)
	} else {
		trade(bodies[i], r)
	}
	for i, body := range bodies {
		bodies[i] = append(wasm.AppendU32(nil, uint32(len(body))), body...)
	}
	return wasmtest.Vector(bodies...)
}

// alike are ranges of instructions of one type each: comparisons, and arithmetic
// of one and of two operands.
var alike = [][2]wasm.Op{
	{wasm.OpI32Eq, wasm.OpI32GeU}, {wasm.OpI64Eq, wasm.OpI64GeU}, {wasm.OpF32Eq, wasm.OpF32Ge}, {wasm.OpF64Eq, wasm.OpF64Ge},
	{wasm.OpI32Clz, wasm.OpI32Popcnt}, {wasm.OpI32Add, wasm.OpI32Rotr}, {wasm.OpI64Clz, wasm.OpI64Popcnt}, {wasm.OpI64Add, wasm.OpI64Rotr},
	{wasm.OpF32Abs, wasm.OpF32Sqrt}, {wasm.OpF32Add, wasm.OpF32Copysign}, {wasm.OpF64Abs, wasm.OpF64Sqrt}, {wasm.OpF64Add, wasm.OpF64Copysign},
}

// trade replaces some instructions with others of the same type, and small numbers
// with other numbers, so that a valid module mostly stays valid.
func trade(code []byte, r *rand.Rand) {
	for range 1 + len(code)/16 {
		at := r.IntN(len(code) + 1)
		if at == len(code) {
			return
		}
		for _, ops := range alike {
			if op := wasm.Op(code[at]); ops[0] <= op && op <= ops[1] {
				code[at] = byte(ops[0]) + byte(r.IntN(int(ops[1]-ops[0])+1))
			}
		}
		if at > 0 && (code[at-1] == byte(wasm.OpI32Const) || code[at-1] == byte(wasm.OpI64Const)) && code[at] < 0x80 {
			code[at] = byte(r.IntN(0x80))
		}
	}
}

// telling are bytes that mean something in many places: counts, types, the ends
// of blocks, and numbers as large as they get.
var telling = []string{
	"\x00", "\x01", "\x02", "\x0b", "\x40", "\x60", "\x6f", "\x70", "\x7b", "\x7c", "\x7d", "\x7e", "\x7f", "\x80", "\xff",
	"\xff\xff\xff\xff\x0f", "\xff\xff\xff\xff\x7f", "\x80\x80\x80\x80\x08", "\x80\x80\x80\x40", "\x80\x80\x80\x80\x80\x00", "\xfc\x0a\x00\x00",
}

// scramble changes some bytes: a bit, a byte, a meaningful one, or it deletes,
// repeats or takes over a piece from another module.
func scramble(b, other []byte, r *rand.Rand) []byte {
	at := r.IntN(len(b) + 1)
	piece := func(from []byte) []byte {
		start := r.IntN(len(from) + 1)
		return slices.Clone(from[start:min(len(from), start+1+r.IntN(32))])
	}
	switch r.IntN(8) {
	case 0:
		return slices.Delete(b, at, min(len(b), at+1+r.IntN(8)))
	case 1:
		return slices.Insert(b, at, piece(b)...)
	case 2:
		return slices.Insert(b, at, piece(other)...)
	case 3:
		copy(b[at:], piece(other))
	case 4:
		return slices.Insert(b, at, []byte(telling[r.IntN(len(telling))])...)
	case 5:
		copy(b[at:], telling[r.IntN(len(telling))])
	case 6:
		if at < len(b) {
			b[at] = byte(r.Uint32())
		}
	default:
		if at < len(b) {
			b[at] ^= 1 << r.IntN(8)
		}
	}
	return b
}
