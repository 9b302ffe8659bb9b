package source_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/host/sandbox"
	module "github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// budget returns a budget for an input of n bytes.
func budget(n int) *work.Budget { return work.New(context.Background(), work.ForSize(n)) }

type world struct{}

func (world) Now(context.Context) int64     { return 1_767_323_045_678_000_000 }
func (world) Random(context.Context) uint64 { return 7 }
func (world) Seed(context.Context) [32]byte { return [32]byte{1} }
func (world) HTTP(context.Context, []byte) ([]byte, abi.Status, time.Duration) {
	return []byte("HTTP/1.1 200 OK\r\n\r\n"), 0, 0
}

// call executes the tool x of a file, and returns its module and the recording.
func call(t *testing.T, name, text string, limits sandbox.Limits) ([]byte, *machine.Recording, string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := guest.Find(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	r, out, err := execute(t, s.Wasm, limits)
	return s.Wasm, r, out, err
}

// execute calls the tool x of a module.
func execute(t *testing.T, wasm []byte, limits sandbox.Limits) (*machine.Recording, string, error) {
	t.Helper()
	engine, err := sandbox.New(t.Context(), sandbox.Config{Machine: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	m, err := engine.Load(t.Context(), wasm, limits)
	if err != nil {
		t.Fatal(err)
	}
	var r *machine.Recording
	got, err := m.Call(t.Context(), sandbox.Call{Tool: "x", Input: []byte(`{"tool":"x","input":{"n":12},"context":{"run_id":"r","call_id":"c","attempt":1}}`),
		Recorded: func(recording *machine.Recording) { r = recording }}, world{})
	return r, string(got.Output), err
}

// callsText returns calls with their variables.
func callsText(calls []source.Call) string {
	var b strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&b, "%s %s:%d:%d\n", c.Function, c.File, c.Line, c.Column)
		for _, x := range c.Variables {
			fmt.Fprintf(&b, "  %s %s = %s\n", x.Type, x.Name, x.Value)
		}
	}
	return b.String()
}

// atEffect returns the calls at the last host call of a recording.
func atEffect(t *testing.T, wasm []byte, r *machine.Recording) (calls []source.Call) {
	t.Helper()
	table, err := source.Open(budget(len(wasm)), wasm)
	if err != nil {
		t.Fatal(err)
	}
	effects := r.Effects()
	if len(effects) == 0 {
		t.Fatal("no host calls")
	}
	if err := r.Seek(t.Context(), effects[len(effects)-1].At); err != nil {
		t.Fatal(err)
	}
	memory, _ := r.Read(0, r.Size())
	follower := source.Follower{Table: table}
	_, _, pulse, _ := follower.Look(memory)
	for _, address := range pulse {
		if address == 0 || address%4 != 0 || address >= r.Size() {
			t.Errorf("pulse %#x", address)
		}
	}
	calls = table.Interpreted(memory)
	// A hostile module can have anything in its memory.
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		changed := slices.Clone(memory)
		for range 1 << random.IntN(14) {
			binary.LittleEndian.PutUint32(changed[4*random.IntN(len(changed)/4):], random.Uint32N(uint32(len(changed))))
		}
		for _, address := range append(pulse[:], 0xff968, 0xffa68) {
			if address /= 4; int(address) < len(changed)/4 {
				binary.LittleEndian.PutUint32(changed[4*address:], random.Uint32()>>random.IntN(32))
			}
		}
		changed = changed[:len(changed)>>random.IntN(4)]
		table.Interpreted(changed)
		follower.Look(changed)
	}
	return calls
}

// lineOfWrite returns the line of the script that wrote a variable of the innermost call last.
func lineOfWrite(t *testing.T, wasm []byte, r *machine.Recording, variables []source.Variable, name string) int {
	t.Helper()
	table, err := source.Open(budget(len(wasm)), wasm)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(variables, func(x source.Variable) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	at, ok, err := r.LastWrite(t.Context(), r.At(), machine.Range{Addr: variables[i].Address, Len: variables[i].Size})
	if err != nil || !ok {
		t.Fatalf("no write of %s: %v", name, err)
	}
	if err := r.Seek(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	memory, _ := r.Read(0, r.Size())
	var locals [][]uint64
	for _, f := range r.Frames() {
		locals = append(locals, f.Locals)
	}
	place, _ := table.Innermost(memory, locals...)
	return place.Line
}

// TestJavaScript compares the stack of QuickJS with what the script says of it.
func TestJavaScript(t *testing.T) {
	wasm, r, out, err := call(t, "tool.js", `function deepest(n, { big }) {
	let inner = n + 1;
	const pi = 3.25, text = "grüße – 🙂", none = null;
	return [new Error("here").stack, Date.now(), inner, pi, text, none, big];
}
const middle = async (word) => {
	const list = [word, true];

	return deepest(list.length, { big: 2 ** 40, list });
};
export default {
	name: "x", effects: ["read"],
	async execute(input) {
		await null;
		return await middle("some " + input.n);
	},
};
`, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	calls := atEffect(t, wasm, r)
	if line := lineOfWrite(t, wasm, r, calls[0].Variables, "inner"); line != 2 {
		t.Errorf("line %d wrote inner", line)
	}
	got := callsText(calls)
	want := `deepest tool.js:4:40
  number n = 2
  number big = 1099511627776
  number inner = 3
  number pi = 3.25
  string text = "grüße – 🙂"
  object none = null
middle tool.js:9:17
  string word = "some 12"
  array list = ["some 12", true]
execute tool.js:15:33
  object input = {n: 12}
`
	if got != want {
		t.Errorf("got\n%swant\n%s%s", got, want, out)
	}
	// QuickJS has the same functions, and the lines of the one script that esbuild makes.
	for _, place := range []string{"deepest (tool:36:17)", "middle (tool:43:24)", "execute (tool:50:41)"} {
		if !strings.Contains(out, place) {
			t.Errorf("%s: no %s", out, place)
		}
	}
}

// TestJavaScriptWithoutCalls finds lines of a loop that calls nothing.
func TestJavaScriptWithoutCalls(t *testing.T) {
	wasm, r, _, err := call(t, "tool.js", `export default {
	name: "x",
	execute(input) {
		let sum = 0;
		for (let i = 0; i < 30000; i++) {
			sum = sum * 3 + i;
			sum = sum % 1000;
		}
		return { sum };
	},
};
`, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	table, err := source.Open(budget(len(wasm)), wasm)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[int]int{}
	for i := range uint64(40) {
		if err := r.Seek(t.Context(), r.End()/2+i*7919); err != nil {
			t.Fatal(err)
		}
		memory, _ := r.Read(0, r.Size())
		var locals [][]uint64
		for _, f := range r.Frames() {
			locals = append(locals, f.Locals)
		}
		if calls := table.Interpreted(memory, locals...); len(calls) > 0 {
			lines[calls[0].Line]++
		}
	}
	if lines[5]+lines[6]+lines[7] != 40 || lines[6] == 0 || lines[7] == 0 {
		t.Errorf("lines %v", lines)
	}
}

// TestPython compares the stack of CPython with what the program says of it.
func TestPython(t *testing.T) {
	wasm, r, out, err := call(t, "tool.py", `import starling, time, traceback

def deepest(n, *rest, **named):
    half = 0.5
    return [f"{f.name} {f.filename}:{f.lineno}" for f in reversed(traceback.extract_stack())], time.time()

class Shop:
    def middle(self, word):
        big, minus, none, yes = 2**40, -7, None, True
        text = "grüße – 🙂"

        def inside():
            return deepest(3, word, b"raw", key=minus)
        return inside()

def x(n: int) -> dict:
    """x

    n: n
    """
    return {"stack": Shop().middle(f"some {n}")}
`, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	calls := atEffect(t, wasm, r)
	if line := lineOfWrite(t, wasm, r, calls[0].Variables, "half"); line != 4 {
		t.Errorf("line %d wrote half", line)
	}
	got := callsText(calls)
	got = regexp.MustCompile("0x[0-9a-f]+").ReplaceAllString(got, "ADDRESS")
	want := `deepest tool.py:5:96
  int n = 3
  tuple rest = ("some 12", b"raw")
  dict named = a dict of 1
  float half = 0.5
Shop.middle.<locals>.inside tool.py:13:20
  int minus = -7
  str word = "some 12"
Shop.middle tool.py:14:16
  Shop self = <Shop at ADDRESS>
  str word = "some 12"
  int big = 1099511627776
  NoneType none = None
  bool yes = True
  str text = "grüße – 🙂"
  function inside = <function at ADDRESS>
  int minus = -7
x tool.py:21:22
  int n = 12
`
	if got != want {
		t.Errorf("got\n%swant\n%s%s", got, want, out)
	}
	if want := `["deepest tool.py:5","inside tool.py:13","middle tool.py:14","x tool.py:21",`; !strings.Contains(out, want) {
		t.Errorf("%s: no %s", out, want)
	}
}

// TestGo compares the lines of the functions on the stack with those that the Go runtime finds, and
// those of functions that were inlined.
func TestGo(t *testing.T) {
	dir := t.TempDir()
	text := `package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

func where() (frames string) {
	pcs := make([]uintptr, 20)
	all := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for f, more := all.Next(); more; f, more = all.Next() {
		frames += fmt.Sprintf("%s %s:%d\n", f.Function, f.File, f.Line)
	}
	return frames
}

type shop struct{ n int }

func (s *shop) inlined(n int) string { return s.outer(n) }

//go:noinline
func (s *shop) outer(n int) string { w, t := where(), time.Now(); s.n += t.Second(); return w }

func main() {
	s := shop{1}
	for i := range 3 {
		if i == 2 && os.Getenv("[decoy!]") == "" {
			fmt.Print(s.inlined(i))
			os.Exit(0)
		}
	}
}
`
	for name, content := range map[string]string{"main.go": text, "go.mod": "module x\ngo 1.24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", "x.wasm", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no Go that builds for wasip1: %v\n%s", err, out)
	}
	wasm, err := os.ReadFile(filepath.Join(dir, "x.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	// Eight bytes of the program are the address of Go's table, as by chance.
	m, err := module.Decode(budget(len(wasm)), wasm)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Data {
		if at := bytes.Index(m.Bytes(d.Pos, d.End), []byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8}); at >= 0 {
			address := binary.LittleEndian.AppendUint64(nil, uint64(uint32(d.Start.Value))+uint64(at))
			if bytes.Count(wasm, []byte("[decoy!]")) != 1 {
				t.Fatal("the text is not there once")
			}
			wasm = bytes.Replace(wasm, []byte("[decoy!]"), address, 1)
			break
		}
	}
	r, want, err := execute(t, wasm, sandbox.DefaultLimits())
	if err != nil || strings.Count(want, "main.go:") != 3 {
		t.Fatal(err, want)
	}
	table, err := source.Open(budget(len(wasm)), wasm)
	if err != nil {
		t.Fatal(err)
	}
	rewritten, err := rewrite.Rewrite(work.Trusted(context.Background()), wasm, rewrite.DefaultLimits(), rewrite.Options{Offsets: true})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		changed := slices.Clone(wasm)
		for range 1 << random.IntN(16) {
			changed[len(wasm)/2+random.IntN(len(wasm)/2)] = byte(random.Uint32()) // lines are in the data, at the end
		}
		if table, err := source.Open(budget(len(changed)), changed); err == nil {
			for offset := 0; offset < len(wasm); offset += 1000 {
				table.Lines(uint32(offset))
			}
		}
	}
	for _, e := range r.Effects() {
		if err := r.Seek(t.Context(), e.At); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range r.Frames() {
			at, _ := rewritten.Offsets.Original(f.Offset)
			for _, p := range table.Lines(at) {
				got += fmt.Sprintf("%s %s:%d\n", p.Function, p.File, p.Line)
			}
		}
		if _, main, _ := strings.Cut(got, "main."); strings.HasPrefix("main."+main, want) {
			return
		} else if main != "" {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	t.Error("no effect of the program")
}
