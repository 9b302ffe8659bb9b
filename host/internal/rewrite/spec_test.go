package rewrite

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// specScript is a file of the WebAssembly test suite after wast2json.
type specScript struct {
	Commands []specCommand `json:"commands"`
}

type specCommand struct {
	Type       string      `json:"type"`
	Line       int         `json:"line"`
	Name       string      `json:"name"`
	Filename   string      `json:"filename"`
	ModuleType string      `json:"module_type"`
	Action     specAction  `json:"action"`
	Expected   []specValue `json:"expected"`
}

type specAction struct {
	Type   string      `json:"type"`
	Field  string      `json:"field"`
	Module string      `json:"module"`
	Args   []specValue `json:"args"`
}

// specValue is a number, by its bits in decimal, or a pattern that the bits of a
// NaN have to match.
type specValue struct {
	Type  string `json:"type"`
	Value any    `json:"value"` // a list of strings for vectors, which no accepted module has
}

func (v specValue) bits() uint64 {
	text, _ := v.Value.(string)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < 0 {
		return uint64(n) & (math.MaxUint64 >> (64 - v.width()))
	}
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

func (v specValue) width() int {
	if strings.HasSuffix(v.Type, "32") {
		return 32
	}
	return 64
}

// satisfied reports whether bits are as expected. A metered module has no
// choice among NaNs.
func (v specValue) satisfied(bits uint64, metered bool) bool {
	text, _ := v.Value.(string)
	if !strings.HasPrefix(text, "nan:") {
		return bits == v.bits()
	}
	sign, canonical := uint64(1)<<63, uint64(0x7ff8000000000000)
	if v.width() == 32 {
		sign, canonical = 1<<31, 0x7fc00000
	}
	switch {
	case metered:
		return bits == canonical
	case text == "nan:canonical":
		return bits&^sign == canonical
	default: // nan:arithmetic
		return bits&canonical == canonical
	}
}

// refusals is the list of modules that the gate refuses of the suite, and why:
// imports that only the suite's own host has, other modules among them, and what
// spec/determinism.md leaves out of the language.
const refusals = "testdata/spec_refused.txt"

var update = flag.Bool("update", false, "write "+refusals+" anew")

// TestSpec runs the official test suite, as it ships in the source of wazero, on
// original and on metered modules, on each engine; the machine executes metered modules alone. Each command must end as the
// suite expects and the same way on both; where the suite leaves the bits of a
// NaN open, the metered module must give the canonical one. The gate refuses
// exactly the modules of a list, and never accepts what the suite calls invalid
// or malformed.
func TestSpec(t *testing.T) {
	root := specRoot(t)
	listed := readRefusals(t)
	var refused []string
	for _, suite := range []struct {
		version, engine string
		agree           int // commands, exactly: a skipped command is not compared
	}{
		{"v1", "compiler", 16072}, {"v1", "interpreter", 16072}, {"v1", "machine", 16072},
		{"v2", "compiler", 20868}, {"v2", "interpreter", 20868}, {"v2", "machine", 20868},
	} {
		t.Run(suite.version+" "+suite.engine, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(root, suite.version, "testdata", "*.json"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			if testing.Short() {
				files = files[:10]
			}
			total := specCount{version: suite.version}
			for _, file := range files {
				runSpec(t, root, file, suite.engine, &total)
			}
			t.Logf("%d commands agree, %d invalid modules stay refused, %d modules refused by the gate, %d commands without a module",
				total.agree, total.invalid, len(total.refused), total.skipped)
			if testing.Short() {
				return
			}
			want := slices.DeleteFunc(slices.Clone(listed), func(line string) bool { return !strings.HasPrefix(line, suite.version+"/") })
			if diff := cmp.Diff(want, total.refused); diff != "" && !*update {
				t.Errorf("other modules are refused (-want +got):\n%s", diff)
			}
			if total.agree != suite.agree {
				t.Errorf("%d commands were compared, not %d", total.agree, suite.agree)
			}
			refused = append(refused, total.refused...)
		})
	}
	if *update {
		slices.Sort(refused)
		if err := os.WriteFile(refusals, []byte(strings.Join(slices.Compact(refused), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readRefusals(t *testing.T) []string {
	b, err := os.ReadFile(refusals)
	if err != nil && !*update {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

type specCount struct {
	version                 string
	agree, invalid, skipped int
	refused                 []string // as in the list
	// missing is true once a module of the script was refused. From then on the
	// named modules that it would have changed are not as the suite expects.
	missing bool
}

func specRoot(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Skipf("SKIPPED: no go tool to find the test suite with: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	if _, err := os.Stat(root); err != nil {
		t.Skip("SKIPPED: the source of wazero is without its test suite")
	}
	return root
}

// TestNoValidModuleIsCalledMalformed takes the test suites of all proposals that wazero
// has through the gate. It refuses modules only for a limit, an import, or a named
// feature.
func TestNoValidModuleIsCalledMalformed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(specRoot(t), "*", "testdata", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	modules := 0
	for _, file := range files {
		var script specScript
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &script)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range script.Commands {
			if c.Type != "module" && c.Type != "assert_unlinkable" && c.Type != "assert_uninstantiable" {
				continue
			}
			module, err := os.ReadFile(filepath.Join(filepath.Dir(file), c.Filename))
			if err != nil {
				t.Fatal(err)
			}
			modules++
			if _, err := Check(work.Trusted(context.Background()), module, DefaultLimits()); err != nil && strings.Contains(err.Error(), "malformed") {
				t.Errorf("%s: %v", c.Filename, err)
			}
		}
	}
	if modules < 2500 {
		t.Errorf("%d modules", modules)
	}
}

// side is one of the two compared runtimes.
type side struct {
	r       wazero.Runtime
	current *guest
	last    api.Module
	named   map[string]api.Module
}

func newSide(t *testing.T, root, engine string) *side {
	s := &side{named: map[string]api.Module{}}
	s.r = newRuntime(t, engines[engine], &s.current)
	b, err := os.ReadFile(filepath.Join(root, "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.r.InstantiateWithConfig(context.Background(), b, wazero.NewModuleConfig().WithName("spectest")); err != nil {
		t.Fatal(err)
	}
	return s
}

// specImport allows the suite's imports from its own host.
func specImport(module, name string) (wasm.FuncType, bool) {
	if module != "spectest" {
		return ImportType(module, name)
	}
	letters, ok := map[string]string{
		"print": ":", "print_i32": "i:", "print_i64": "I:", "print_f32": "f:", "print_f64": "F:",
		"print_i32_f32": "if:", "print_f64_f64": "FF:",
	}[name]
	return wasmtest.Type(letters), ok
}

func runSpec(t *testing.T, root, file, engine string, total *specCount) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var script specScript
	if err := json.Unmarshal(b, &script); err != nil {
		t.Fatal(err)
	}
	plain, metered := newSide(t, root, engine), newSide(t, root, engine)
	total.missing = false
	for _, c := range script.Commands {
		where := fmt.Sprintf("%s:%d", filepath.Base(file), c.Line)
		switch c.Type {
		case "module":
			specModule(t, where, filepath.Dir(file), c, plain, metered, total)
		case "assert_return", "action", "assert_trap", "assert_exhaustion":
			specCall(t, where, c, plain, metered, total)
		case "assert_invalid", "assert_malformed", "assert_uninstantiable", "assert_unlinkable":
			if c.ModuleType != "text" {
				specInvalid(t, where, filepath.Dir(file), c, plain, metered, total)
			}
		}
	}
	slices.Sort(total.refused)
	plain.r.Close(context.Background())
	metered.r.Close(context.Background())
}

// specModule loads a module on both sides, or on none when the gate refuses it.
func specModule(t *testing.T, where, dir string, c specCommand, plain, metered *side, total *specCount) {
	b, err := os.ReadFile(filepath.Join(dir, c.Filename))
	if err != nil {
		t.Fatal(err)
	}
	plain.last, metered.last = nil, nil
	errPlain := plain.load(b, c.Name)
	errMetered := metered.loadMetered(b, c.Name)
	var refusal *Refusal
	switch {
	case errors.As(errMetered, &refusal):
		if strings.HasPrefix(refusal.What, "malformed") && errPlain == nil {
			t.Errorf("%s: a valid module is called malformed: %v", where, refusal)
		}
		total.refused = append(total.refused, total.version+"/"+where+" "+refusal.What)
		total.missing, plain.last = true, nil
	case (errPlain == nil) != (errMetered == nil):
		t.Errorf("%s: load: original %v, metered %v", where, errPlain, errMetered)
	}
	for _, s := range []*side{plain, metered} {
		if c.Name != "" {
			s.named[c.Name] = s.last
		}
	}
}

func (s *side) load(b []byte, name string) error {
	return s.loadResult(&Result{Wasm: b})
}

func (s *side) loadResult(res *Result) error {
	m, err := instantiate(context.Background(), s.r, res)
	if err == nil {
		s.last = m
	}
	return err
}

func (s *side) loadMetered(b []byte, name string) error {
	res, err := rewriteWith(work.Trusted(context.Background()), b, DefaultLimits(), Options{MemoryPages: 65536}, specImport)
	if err != nil {
		return err
	}
	if err := s.loadResult(res); err != nil {
		return err
	}
	s.current = &guest{Module: s.last, refill: func(*guest) {}}
	s.prepare(s.last)
	if f := s.last.ExportedFunction(ExportStart); f != nil {
		if _, err := f.Call(context.Background()); err != nil {
			s.last = nil
			return err
		}
	}
	return nil
}

// prepare sets the budgets of a metered module before a call.
func (s *side) prepare(m api.Module) {
	if g, ok := m.ExportedGlobal(GlobalLimit).(api.MutableGlobal); ok {
		g.Set(1 << 62)
		m.ExportedGlobal(GlobalDepth).(api.MutableGlobal).Set(DefaultDepth)
	}
}

func (s *side) module(name string) api.Module {
	if name == "" {
		return s.last
	}
	return s.named[name]
}

// specCall compares the outcome of one call: the results, or the trap.
func specCall(t *testing.T, where string, c specCommand, plain, metered *side, total *specCount) {
	if plain.module(c.Action.Module) == nil || metered.module(c.Action.Module) == nil {
		total.skipped++
		return
	}
	want, got := plain.call(c, false), metered.call(c, true)
	if c.Type == "assert_exhaustion" { // the engine's own stack, or the budget
		want, got = strconv.FormatBool(strings.HasPrefix(want, "trap")), strconv.FormatBool(strings.HasPrefix(got, "trap"))
	}
	expected := c.Type == "assert_return" && (c.Action.Module == "" || !total.missing)
	if want != got || expected && strings.Contains(got, " 0x") {
		t.Errorf("%s: %s: original %s, metered %s", where, c.Action.Field, want, got)
		return
	}
	total.agree++
}

// call makes a call and returns its outcome as text: results that are as
// expected by the expectation, others by their bits.
func (s *side) call(c specCommand, metered bool) string {
	m := s.module(c.Action.Module)
	if c.Action.Type == "get" {
		g := m.ExportedGlobal(c.Action.Field)
		if g == nil {
			return "no global"
		}
		return c.outcome([]api.ValueType{g.Type()}, []uint64{g.Get()}, metered)
	}
	f := m.ExportedFunction(c.Action.Field)
	if f == nil {
		return "no function"
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits())
	}
	s.prepare(m)
	results, err := f.Call(context.Background(), args...)
	if err != nil {
		return "trap: " + trapText(err)
	}
	return c.outcome(f.Definition().ResultTypes(), results, metered)
}

func (c specCommand) outcome(types []api.ValueType, results []uint64, metered bool) string {
	text := "returns"
	for i, t := range types {
		bits := results[i]
		if t == api.ValueTypeI32 || t == api.ValueTypeF32 {
			bits = uint64(uint32(bits)) // the upper half is garbage
		}
		if i < len(c.Expected) && c.Expected[i].satisfied(bits, metered) {
			text += fmt.Sprintf(" %v", c.Expected[i].Value)
		} else {
			text += fmt.Sprintf(" %#x", bits)
		}
	}
	return text
}

// specInvalid: what does not load as it came must not load metered.
func specInvalid(t *testing.T, where, dir string, c specCommand, plain, metered *side, total *specCount) {
	b, err := os.ReadFile(filepath.Join(dir, c.Filename))
	if err != nil {
		t.Fatal(err)
	}
	if plain.load(b, "") == nil {
		return // wazero accepts it; then so may we
	}
	if metered.loadMetered(b, "") == nil {
		t.Errorf("%s: %s became valid", where, c.Filename)
		return
	}
	total.invalid++
}
