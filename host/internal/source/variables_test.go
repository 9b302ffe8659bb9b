package source

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/work"
)

// recorded executes run(n) of a module without imports.
func recorded(t *testing.T, path string, n uint64) (*machine.Recording, *rewrite.Offsets, error) {
	t.Helper()
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rewrite.Rewrite(work.Trusted(context.Background()), module, rewrite.DefaultLimits(), rewrite.Options{Offsets: true})
	if err != nil {
		t.Fatal(err)
	}
	code, err := machine.Translate(t.Context(), r.Wasm, rewrite.GlobalFuel)
	if err != nil {
		t.Fatal(err)
	}
	m := machine.New(code, []machine.Host{func([]uint64) {}})
	for _, s := range r.Data {
		m.Write(s.Offset, s.Bytes)
	}
	m.Record(0)
	err = m.Call(context.Background(), "run", []uint64{n})
	return m.Recording(), r.Offsets, err
}

func stateOf(r *machine.Recording, f machine.Frame) State {
	memory, _ := r.Read(0, r.Size())
	return State{f.Locals, r.Globals(), memory}
}

var address = regexp.MustCompile("0x[0-9a-f]+")

func TestVariables(t *testing.T) {
	for _, flag := range []string{"-gdwarf-4", "-gdwarf-5"} {
		t.Run(flag, func(t *testing.T) {
			path := compiled(t, flag, "-O0")
			table := opened(t, path)
			r, offsets, err := recorded(t, path, 5)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile("testdata/points.c")
			line := 1 + slices.Index(strings.Split(string(text), "\n"), "\treturn total;")
			var stops []uint32
			all, _ := table.Addresses("points.c", line)
			for _, at := range all {
				if !table.Statement(at) {
					t.Errorf("line %d does not begin at %#x", line, at)
				}
				stop, _ := offsets.Rewritten(at)
				stops = append(stops, stop)
			}
			last := uint64(0)
			for err = r.Seek(t.Context(), 0); err == nil && r.At() < r.End(); {
				var reason machine.Reason
				if reason, err = r.Run(t.Context(), r.End(), machine.Stop{Offsets: stops}); reason == machine.Offset {
					last = r.At()
				}
			}
			if err = cmp.Or(err, r.Seek(t.Context(), last)); err != nil || last == 0 {
				t.Fatal(last, err)
			}
			for name, lines := range map[string][]int{"sum": {22}, "add": {16}, "run": {33}, "none": nil} {
				var got []int
				for _, at := range table.Entries(name) {
					got = append(got, table.Lines(at)[0].Line)
				}
				if !slices.Equal(got, lines) {
					t.Errorf("%s begins in lines %v", name, got)
				}
			}
			got := ""
			for _, f := range r.Frames()[:2] {
				at, _ := offsets.Original(f.Offset)
				for _, x := range table.Variables(budget(1<<20), at, stateOf(r, f)) {
					got += fmt.Sprintf("%s %s = %s\n", x.Type, x.Name, x.Value)
					for _, c := range x.Children {
						got += fmt.Sprintf("  %s %s = %s\n", c.Type, c.Name, c.Value)
					}
				}
			}
			// 0+1, 7+2, 14+3, doubled there, 21+4, 28+1.
			want := `point * p = ADDRESS {x: 0, y: 0, name: ADDRESS "hello", next: ADDRESS}
  int x = 0
  double y = 0
  const char * name = ADDRESS "hello"
  point * next = ADDRESS
int n = 5
int total = 108
color c = GREEN
int[4] table = [1, 2, 3, 4]
  int [0] = 1
  int [1] = 2
  int [2] = 3
  int [3] = 4
int n = 5
point * p = ADDRESS {x: 0, y: 0, name: ADDRESS "hello", next: ADDRESS}
  int x = 0
  double y = 0
  const char * name = ADDRESS "hello"
  point * next = ADDRESS
int[4] table = [1, 2, 3, 4]
  int [0] = 1
  int [1] = 2
  int [2] = 3
  int [3] = 4
`
			if got = address.ReplaceAllString(got, "ADDRESS"); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// TestTrapPlace finds the line of a trap in an inlined function, and its callers.
func TestTrapPlace(t *testing.T) {
	for _, optimize := range []string{"-O0", "-O2"} {
		path := compiled(t, "-g", optimize)
		table := opened(t, path)
		r, offsets, err := recorded(t, path, 12)
		if err == nil || !strings.Contains(err.Error(), "unreachable") {
			t.Fatalf("error %v", err)
		}
		var got []string
		for _, f := range r.Frames() {
			at, _ := offsets.Original(f.Offset)
			for _, p := range table.Lines(at) {
				got = append(got, fmt.Sprintf("%s:%d", p.Function, p.Line))
			}
			table.Variables(budget(1<<20), at, stateOf(r, f))
		}
		want := []string{"add:17", "sum:25", "run:41"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", optimize, got, want)
		}
	}
}

// TestCPlusPlus reads methods, references, templates, base classes and namespaces.
func TestCPlusPlus(t *testing.T) {
	for _, flag := range []string{"-gdwarf-4", "-gdwarf-5"} {
		t.Run(flag, func(t *testing.T) {
			out := compiledCPlusPlus(t, flag)
			r, offsets, err := recorded(t, out, 3)
			if err == nil {
				t.Fatal("no trap")
			}
			table := opened(t, out)
			got := ""
			for _, f := range r.Frames() {
				at, _ := offsets.Original(f.Offset)
				for _, p := range table.Lines(at) {
					got += fmt.Sprintf("%s:%d\n", p.Function, p.Line)
				}
				for _, x := range table.Variables(budget(1<<20), at, stateOf(r, f)) {
					got += fmt.Sprintf("  %s %s = %s\n", x.Type, x.Name, x.Value)
				}
			}
			got = address.ReplaceAllString(got, "ADDRESS")
			want := `shop::Item::half:44
  int halved = 3
  const Item * this = ADDRESS {_vptr$Named: ADDRESS, name: ADDRESS "book", kind: Gift, cents: 900, weight: 65, code: "A", gift: ?, fragile: ?}
  int by = 10
  int part = 90
  int discounts = 270
  int made = 1
shop::Basket::total:60
  Item & one = {_vptr$Named: ADDRESS, name: ADDRESS "book", kind: Gift, cents: 900, weight: 65, code: "A", gift: ?, fragile: ?}
  int i = 2
  Basket * this = ADDRESS {items: {items: [ADDRESS, ADDRESS, ADDRESS, ADDRESS], used: 6}, sum: 5220}
  int discounts = 270
  int made = 1
  int halved = 3
run:75
  int count = 3
  Basket basket = {items: {items: [ADDRESS, ADDRESS, ADDRESS, ADDRESS], used: 6}, sum: 5220}
  Item item = {_vptr$Named: ADDRESS, name: ADDRESS "book", kind: Gift, cents: 900, weight: 65, code: "A", gift: ?, fragile: ?}
  class twice = {basket: {items: {items: [ADDRESS, ADDRESS, ADDRESS, ADDRESS], used: 6}, sum: 5220}}
  int discounts = 270
  int made = 1
  int halved = 3
`
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			for _, name := range []string{"shop::Item::half", "Item::half", "half"} {
				if all := table.Entries(name); len(all) != 1 {
					t.Errorf("%s begins at %v", name, all)
				}
			}
		})
	}
}

// TestInlinedMethods compares whose the variables are with the functions at their place.
func TestInlinedMethods(t *testing.T) {
	out := compiledCPlusPlus(t, "-g", "-O2")
	r, offsets, err := recorded(t, out, 3)
	if err == nil {
		t.Fatal("no trap")
	}
	table, inlined, statics := opened(t, out), 0, 0
	for _, f := range r.Frames() {
		at, _ := offsets.Original(f.Offset)
		for _, x := range table.Variables(budget(1<<20), at, stateOf(r, f)) {
			if x.Name == "halved" && x.Value == "3" {
				statics++
			} else if x.Function != "" {
				inlined++
				if !slices.ContainsFunc(table.Lines(at), func(p Place) bool { return p.Function == x.Function }) {
					t.Errorf("%s is of %s, and the lines are %v", x.Name, x.Function, table.Lines(at))
				}
			}
		}
	}
	if inlined == 0 || statics == 0 {
		t.Errorf("%d variables of inlined functions, %d static ones", inlined, statics)
	}
}

// compiledCPlusPlus returns the module that clang++ makes of testdata/shop.cpp.
func compiledCPlusPlus(t *testing.T, flags ...string) string {
	t.Helper()
	treetest.Needs(t, "c", "c++")
	out := filepath.Join(t.TempDir(), "shop.wasm")
	text, err := exec.Command("clang++", append(flags, "--target=wasm32-wasi", "-fno-exceptions", "-fno-rtti", "-nostdlib++", "-mexec-model=reactor", "-o", out, "testdata/shop.cpp")...).CombinedOutput()
	if err != nil {
		t.Fatalf("clang++: %v\n%s", err, text)
	}
	return out
}
