package rewrite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/starling-host/starling/host/wasm"
	"github.com/starling-host/starling/host/wasm/wasmtest"
)

// specScript is a file of the WebAssembly test suite after wast2json.
type specScript struct {
	Commands []specCommand `json:"commands"`
}

type specCommand struct {
	Type       string     `json:"type"`
	Line       int        `json:"line"`
	Name       string     `json:"name"`
	Filename   string     `json:"filename"`
	ModuleType string     `json:"module_type"`
	Action     specAction `json:"action"`
	Expected   []struct {
		Type  string `json:"type"`
		Value any    `json:"value"`
	} `json:"expected"`
}

// canonical replaces the NaNs whose bits the suite leaves open by the one that
// the deterministic profile asks for.
func (c specCommand) canonical(results []uint64) {
	for i, want := range c.Expected {
		text, _ := want.Value.(string)
		if i >= len(results) || !strings.HasPrefix(text, "nan:") {
			continue
		}
		switch {
		case want.Type == "f32" && math.IsNaN(float64(math.Float32frombits(uint32(results[i])))):
			results[i] = 0x7fc00000
		case want.Type == "f64" && math.IsNaN(math.Float64frombits(results[i])):
			results[i] = 0x7ff8000000000000
		}
	}
}

type specAction struct {
	Type   string `json:"type"`
	Field  string `json:"field"`
	Module string `json:"module"`
	Args   []struct {
		Type  string `json:"type"`
		Value any    `json:"value"`
	} `json:"args"`
}

// TestSpec runs the official test suite, as it ships in the source of wazero,
// on original and on metered modules: every command must end the same way, and
// where the suite leaves the bits of a NaN open the metered module must give the
// canonical one.
// Modules that the gate refuses are left out, but what the suite calls invalid
// or malformed must never be accepted.
func TestSpec(t *testing.T) {
	root := specRoot(t)
	for _, suite := range []struct {
		name, files, engine string
		agree               int // commands, exactly: one that is left out is one that is not compared
		refused             map[string]int
	}{
		{"v1", "v1/testdata/*.json", "compiler", 16072, refusedOfV1},
		{"v2", "v2/testdata/*.json", "compiler", 20736, refusedOfV2},
		{"v1 interpreted", "v1/testdata/*.json", "interpreter", 16072, refusedOfV1},
		{"v2 interpreted", "v2/testdata/*.json", "interpreter", 20736, refusedOfV2},
	} {
		t.Run(suite.name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(root, suite.files))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			files = slices.DeleteFunc(files, func(file string) bool { return strings.HasPrefix(filepath.Base(file), "simd_") })
			if testing.Short() {
				files = files[:10]
			}
			total := specCount{refused: map[string]int{}}
			for _, file := range files {
				runSpec(t, root, file, suite.engine, &total)
			}
			t.Logf("%d commands agree, %d invalid modules stay refused, %d modules refused by the gate, %d commands without a module",
				total.agree, total.invalid, total.modules, total.skipped)
			if testing.Short() {
				return
			}
			if diff := cmp.Diff(suite.refused, total.refused); diff != "" {
				t.Errorf("other modules are refused (-want +got):\n%s", diff)
			}
			if total.agree != suite.agree {
				t.Errorf("%d commands were compared, not %d", total.agree, suite.agree)
			}
		})
	}
}

// What the gate refuses of the suite, by reason: imports that only the suite's
// own host has, and what spec/determinism.md leaves out of the language.
var (
	refusedOfV1 = map[string]int{
		"it asks for what this host does not have:":   75,
		"too many or too large: labels of a br_table": 1,
	}
	refusedOfV2 = map[string]int{
		"it asks for what this host does not have:":            95,
		"too many or too large: tables":                        78,
		"too many or too large: parameters of a function type": 1,
		"passive and declarative segments are not allowed":     61,
		"table.copy is not allowed":                            12,
		"values of type externref are not allowed":             6,
		"values of type funcref are not allowed":               4,
		"tables of externref are not allowed":                  2,
		"ref.is_null is not allowed":                           1,
		"ref.null is not allowed":                              1,
		"table.init is not allowed":                            1,
		"memory.init is not allowed":                           1,
	}
)

type specCount struct {
	agree, invalid, modules, skipped int
	refused                          map[string]int
}

func specRoot(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Skipf("no go tool to find the test suite with: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
	if _, err := os.Stat(root); err != nil {
		t.Skip("the source of wazero is without its test suite")
	}
	return root
}

// side is one of the two runtimes that are compared.
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

// specImport allows what the suite imports from its own host.
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
	for _, c := range script.Commands {
		where := fmt.Sprintf("%s:%d", filepath.Base(file), c.Line)
		switch c.Type {
		case "module":
			specModule(t, where, filepath.Dir(file), c, plain, metered, total)
		case "assert_return", "action", "assert_trap", "assert_exhaustion":
			specCall(t, where, c, plain, metered, total)
		case "assert_invalid", "assert_malformed", "assert_uninstantiable":
			if c.ModuleType != "text" {
				specInvalid(t, where, filepath.Dir(file), c, plain, metered, total)
			}
		}
	}
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
		total.modules++
		what := strings.SplitAfterN(refusal.What, ":", 2)[0]
		if refusal.Value > refusal.Limit {
			what = refusal.What
		}
		total.refused[what]++
		plain.last = nil
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
	res, err := rewriteWith(b, DefaultLimits(), Options{MemoryPages: 65536}, specImport)
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
	want, got := plain.call(c, true), metered.call(c, false)
	if c.Type == "assert_exhaustion" { // the engine's own stack, or the budget
		want, got = strconv.FormatBool(strings.HasPrefix(want, "trap")), strconv.FormatBool(strings.HasPrefix(got, "trap"))
	}
	if want != got {
		t.Errorf("%s: %s: original %s, metered %s", where, c.Action.Field, want, got)
		return
	}
	total.agree++
}

// call makes a call and returns its outcome in words, as it is or with NaNs as
// they should be.
func (s *side) call(c specCommand, canonical bool) string {
	m := s.module(c.Action.Module)
	if c.Action.Type == "get" {
		if g := m.ExportedGlobal(c.Action.Field); g != nil {
			return fmt.Sprint(g.Get())
		}
		return "no global"
	}
	f := m.ExportedFunction(c.Action.Field)
	if f == nil {
		return "no function"
	}
	var args []uint64
	for _, a := range c.Action.Args {
		text, _ := a.Value.(string)
		v, _ := strconv.ParseUint(text, 10, 64)
		args = append(args, v)
	}
	s.prepare(m)
	results, err := f.Call(context.Background(), args...)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return "trap: " + line
	}
	for i, t := range f.Definition().ResultTypes() {
		if t == api.ValueTypeI32 || t == api.ValueTypeF32 {
			results[i] = uint64(uint32(results[i])) // the upper half is garbage
		}
	}
	if canonical {
		c.canonical(results)
	}
	return fmt.Sprint(results)
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

// TestSpecRoundTrip decodes and encodes every module of the suite: the ones
// that decode come back byte for byte.
func TestSpecRoundTrip(t *testing.T) {
	root := specRoot(t)
	files, err := filepath.Glob(filepath.Join(root, "v[12]", "testdata", "*.wasm"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	unknown := map[string]int{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := wasm.Decode(b)
		if err != nil {
			unknown[filepath.Base(filepath.Dir(filepath.Dir(file)))]++
			continue
		}
		if diff := cmp.Diff(b, m.Encode()); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
	t.Logf("%d modules, not decoded: %v", len(files), maps.Collect(maps.All(unknown)))
}
