package component

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// fixtures are the components that testdata/build.mjs makes, with the digests of the modules
// that they become. These may change only with Version, and with guest.wasm before the first
// release.
var fixtures = map[string]string{
	"act":     "bebdcaa78cc80678c35fa2b3dabdacc13533dd04b74cec734fe138883a29a273",
	"values":  "d4252b0a4d52245ab0e3f3af96520ef443c19a94e7ae345e6ebd8dd3cbeb28ce",
	"adapter": "9e75182feae173d26c7d82ce3bffca13e05fc8ff7bc8d51c7a8d949b2646ba95",
	"linked":  "eb9a24e157914ab6f6ac747620db1d9830491e8b07ad17579ca585764344f3ff",
	"parts":   "debbe461217d39454cbe8bf8b148c9c0fb9d6376190509eb0d499a155db29094",
	"mcp":     "254885123d0b28552075b3ba63c49a3a15d5ed34fcae3a0c9a08725792c09fc4",
	"command": "a40889cec51239894cc793552e4c351f727519ea2c2475c8df2bfa269775836e",
	"context": "1629aa9937b3d49816e9ef2ed9e9652e90e345d01c3ab02f75e0d90f5d33c261",
	"plugin":  "4ad2b8ae8d4adc321fa420ed5128c273728fe40c86f47ba33d0c99bb2ab913ff",
	"stale":   "06b5dc4773099bd9c287bdb4ce91f0c75f8ec821de061dabe7f9ab669b8692cb",
}

// world is what the tools of the tests see.
type world struct {
	http func(request string) string
}

func (world) Now(context.Context) int64     { return 1_790_000_000_000_000_000 }
func (world) Random(context.Context) uint64 { return 4 }
func (world) Seed(context.Context) [32]byte { return [32]byte{1} }
func (w world) HTTP(_ context.Context, r []byte) ([]byte, abi.Status, time.Duration) {
	if w.http == nil {
		return []byte("no network"), abi.StatusDenied, 0
	}
	return []byte(w.http(string(r))), 0, 0
}

func readFixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// budget is the budget of a module that is linked by itself.
func budget(t testing.TB, b []byte) *work.Budget {
	return work.New(t.Context(), work.ForSize(len(b)))
}

func link(t testing.TB, name string) []byte {
	t.Helper()
	out, err := Link(budget(t, readFixture(t, name)), readFixture(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

// loaded is a component that is ready to be called.
type loaded struct {
	*sandbox.Module
	world world
}

// load links and compiles one of the fixtures.
func load(t *testing.T, name string, actions ...Action) *loaded {
	t.Helper()
	return loadBytes(t, readFixture(t, name), actions...)
}

func loadBytes(t *testing.T, b []byte, actions ...Action) *loaded {
	t.Helper()
	engine, err := sandbox.New(t.Context(), sandbox.Config{Machine: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := Link(budget(t, b), b, actions...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Load(t.Context(), out, sandbox.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	return &loaded{Module: m}
}

// call calls a tool and returns the document that it returned, or the error.
func (l *loaded) call(tool, input string) string {
	doc := `{"context":{"attempt":1,"call_id":"C","run_id":"R"},"input":` + input + `,"tool":"` + tool + `"}`
	r, err := l.Call(context.Background(), sandbox.Call{Tool: tool, Input: []byte(doc)}, l.world)
	if err != nil {
		return err.Error()
	}
	return string(r.Output)
}

// TestSameBytes checks that a component becomes the same module for ever.
func TestSameBytes(t *testing.T) {
	for name, want := range fixtures {
		out := link(t, name)
		if again := link(t, name); !bytes.Equal(out, again) {
			t.Errorf("%s: two links differ", name)
		}
		if got := canon.Sum(out).String(); got != want {
			t.Errorf("%s became %s, and was %s: raise Version, unless guest.wasm or the fixture has changed before the first release", name, got, want)
		}
		if _, err := rewrite.Rewrite(work.Trusted(context.Background()), out, rewrite.DefaultLimits(), rewrite.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTools calls tools of the fixtures: results, failures, resources within the component, an
// adapter with start functions and tables, and libraries that are linked when they start.
func TestTools(t *testing.T) {
	for fixture, calls := range map[string][][3]string{
		"values": {
			{"upper", `{"text":"gr\u00fcn \ud83d\ude00"}`, `{"output":"GRüN 😀"}`},
			{"upper", `{"text":""}`, `{"error":{"kind":"tool","message":"no \"text\"\n"}}`},
			{"nothing", `{}`, `{"output":null}`},
			{"count", `{"start":3,"steps":[1,2,3,4]}`, `{"output":"1:4 2:5 2:6 3:7 12."}`},
			{"double", `{"v":0.1}`, `{"output":0.2}`},
			{"double", `{"v":5e299}`, `{"output":1e+300}`},
			{"today", `{}`, `{"output":1790000000}`},
			{"access-of", `{"v":{"write":true},"w":"deep-blue"}`, `{"output":[{"read":false,"run":false,"write":true},"deep-blue"]}`},
		},
		"adapter": {
			{"run-it", `{"n":5,"which":0}`, `{"output":10}`},
			{"run-it", `{"n":5,"which":1}`, `{"output":15}`},
		},
		"agent": {
			{"execute", `{"a":1}`, `{"output":[{"a":1}]}`},
			{"execute", `{}`, `{"error":{"kind":"tool","message":"nothing"}}`},
		},
		"linked": {
			{"go", `{"n":4,"which":0}`, `{"output":108}`},
			{"go", `{"n":4,"which":1}`, `{"output":111}`},
			{"at", `{}`, `{"output":1028}`},
			{"where", `{}`, "tool: panicked: trap: unreachable"},
		},
	} {
		l := load(t, fixture)
		for _, c := range calls {
			if got := l.call(c[0], c[1]); got != c[2] {
				t.Errorf("%s: %s(%s) returned %s, want %s", fixture, c[0], c[1], got, c[2])
			}
		}
	}
}

// TestActions calls the tools of a manifest, which are one function of the component.
func TestActions(t *testing.T) {
	l := load(t, "agent", Action{ID: "notes.find_all", Description: "Finds.", Schema: abi.JSON(`{"type":"object"}`), Hosts: []string{"notes.example"}, Address: "https://notes.example/", Authorization: "Bearer {{secret:NOTES}}"}, Action{ID: "notes.drop", Schema: abi.JSON(`{}`)})
	if got, want := l.call("notes_find_all", `{"a":1}`), `{"output":[{"a":1},{"capability_id":"notes.find_all"}]}`; got != want {
		t.Errorf("the call returned %s, want %s", got, want)
	}
	l.world.http = func(request string) string {
		return fmt.Sprint("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", map[bool]string{true: "true ", false: "false"}[strings.Contains(request, "\r\nAuthorization: Bearer {{secret:NOTES}}\r\n")])
	}
	for tool, want := range map[string]string{
		"notes_find_all": `{"output":[{"get":1},{"capability_id":"notes.find_all"},true ]}`,
		"notes_drop":     `{"output":[{"get":1},{"capability_id":"notes.drop"},false]}`, // which has no credential
	} {
		if got := l.call(tool, `{"get":1}`); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("the request returned %s, want %s", got, want)
		}
	}
	doc, err := l.Describe(t.Context())
	if want := `{"tools":[{"name":"notes_find_all","description":"Finds.","input_schema":{"type":"object"},"effects":["notes.example"]},{"name":"notes_drop","description":"","input_schema":{}}]}`; err != nil || string(doc) != want {
		t.Errorf("the description is %s %v, want %s", doc, err, want)
	}
	if doc, err := load(t, "agent").Describe(t.Context()); err != nil || string(doc) != `{"tools":[{"name":"execute","description":"Returns \"it\".","input_schema":{"type":"object"}}]}` {
		t.Errorf("without a manifest the description is %s %v", doc, err)
	}
}

// TestDescription checks what a model and a user see of a component.
func TestDescription(t *testing.T) {
	out := link(t, "values")
	l := load(t, "values")
	doc, err := l.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var d abi.Description
	if err := json.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range d.Tools {
		names = append(names, tool.Name)
		if tool.Name == "access-of" && strings.Count(string(tool.InputSchema), `"additionalProperties":false`) != 2 { // the input, and the flags in it
			t.Errorf("a misspelt member is not refused by %s", tool.InputSchema)
		}
		if tool.Name == "numbers" && !strings.Contains(string(tool.InputSchema), `"i":{"maximum":18446744073709551615,"minimum":0,"type":"integer"}`) {
			t.Errorf("the schema of numbers is %s", tool.InputSchema)
		}
	}
	if want := []string{"today", "luck", "every-one", "shapes", "numbers", "either", "access-of", "double", "upper", "nothing", "count"}; !slices.Equal(names, want) {
		t.Errorf("the tools are %q, want %q", names, want)
	}
	p := ProvenanceOf(work.Trusted(t.Context()), out)
	if p == nil || p.Component != canon.Sum(readFixture(t, "values")).String() || p.Linker != Version || !slices.Contains(p.Imports, "wasi:clocks/wall-clock@0.2.3") {
		t.Errorf("the provenance is %+v", p)
	}
	if ProvenanceOf(work.Trusted(t.Context()), readFixture(t, "values")) != nil {
		t.Error("a component says that it was joined")
	}
	noted := readFixture(t, "values")
	act, err := cbor.Marshal(map[string]any{"std": map[string]any{"name": "times", "version": "0.9", "description": "of ACT", "capabilities": []int{1}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range []struct {
		name string
		text []byte
	}{{"version", []byte("1.0")}, {"licenses", []byte("MIT")}, {"source", []byte("https://a.test\x1b[2J")}, {"act:component", act}} {
		body := append(wasm.AppendName(nil, note.name), note.text...)
		noted = append(binary.AppendUvarint(append(noted, byte(wasm.SectionCustom)), uint64(len(body))), body...)
	}
	if out, err = Link(budget(t, noted), noted); err != nil {
		t.Fatal(err)
	}
	p = ProvenanceOf(work.Trusted(t.Context()), out)
	if p.Name != "times" || p.Version != "1.0" || p.Description != "of ACT" || p.License != "MIT" || p.Source != "https://a.test[2J" {
		t.Errorf("the author says %+v", p)
	}
	m, err := wasm.Decode(work.Trusted(context.Background()), link(t, "adapter"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range m.FuncNames {
		all = append(all, name)
	}
	if joined := strings.Join(all, "\n"); !strings.Contains(joined, ".fd_write\n") || !strings.Contains(joined, ".run_it\n") || !strings.Contains(joined, "starling_describe\n") {
		t.Errorf("the functions are named %q", all)
	}
}

// TestDocs reads both forms of the comments that a component may carry.
func TestDocs(t *testing.T) {
	b := readFixture(t, "values")
	section := append(wasm.AppendName(nil, "package-docs"), "\x01"+`{"worlds":{"values":{"func_exports":{"today":{"docs":"The day."}}}},"interfaces":{"api":{"funcs":{"upper":"Makes\u200b capitals.\n"}}}}`...)
	b = append(append(b, 0), sized(section)...)
	l := &reading{budget: budget(t, b)}
	d := l.documentation(l.custom(b))
	if today, upper := d.of("", "today"), d.of("test:values/api@1.0.0", "upper"); today != "The day." || upper != "Makes capitals." {
		t.Errorf("the comments are %q and %q", today, upper)
	}
}

// TestRefusals checks that what is not supported is refused by name, before anything is built.
func TestRefusals(t *testing.T) {
	section := func(id byte, items ...string) string {
		b := wasm.AppendU32(nil, uint32(len(items)))
		return string(append([]byte{id}, sized(append(b, strings.Join(items, "")...))...))
	}
	const header = "\x00asm\x0d\x00\x01\x00"
	nested := header
	for range 12 {
		nested = header + string(append([]byte{4}, sized([]byte(nested))...)) + section(5, strings.Repeat("\x00\x00\x00", 1), "\x00\x00\x00", "\x00\x00\x00")
	}
	doubled := "\x7d" // u8
	types := []string{doubled}
	for i := range 40 {
		types = append(types, string([]byte{0x6f, 2, byte(i), byte(i)}))
	}
	deep := []string{"\x7d"}
	for i := range 120 {
		deep = append(deep, string(append([]byte{0x70}, wasm.AppendS64(nil, int64(i))...)))
	}
	instanceType := "\x42\x00"
	for range 150 {
		instanceType = "\x42\x01\x01" + instanceType
	}
	large := string(append([]byte{1}, sized(append([]byte("\x00asm\x01\x00\x00\x00\x00"), sized(make([]byte, 1<<20))...))...))
	global := string(append([]byte{6}, sized(append(wasm.AppendU32(nil, 2000), strings.Repeat("\x7f\x00\x41\x00\x0b", 2000)...))...))
	globals := string(append([]byte{1}, sized([]byte("\x00asm\x01\x00\x00\x00"+global))...))
	callable := string(append([]byte{1}, sized([]byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x00\x0a\x04\x01\x02\x00\x0b"))...)) +
		section(2, "\x00\x01\x00") + section(6, "\x00\x00\x01\x3c\x01f") + section(7, "\x40\x00\x01\x00") + section(8, "\x00\x00\x00\x00\x00") + section(11, "\x00\x01f\x01\x00\x00")
	tuple := "\x6f\x64" + strings.Repeat("\x7d", 100)
	tuples := section(7, slices.Repeat([]string{tuple}, 20)...)
	tuples = string(append([]byte{4}, sized([]byte(header+tuples))...))
	for name, c := range map[string]struct{ component, want string }{
		"empty":                     {header, "it exports nothing"},
		"instances that double":     {nested, "costs more than its size allows"},
		"types that double":         {header + section(7, types...), "a type of more than 2 GiB"},
		"deep types":                {header + section(7, deep...), "nested deeper than 100"},
		"deep instance types":       {header + section(7, instanceType), "nested deeper than 100"},
		"modules that double":       {header + large + section(2, slices.Repeat([]string{"\x00\x00\x00"}, 40)...), "it exports nothing"},
		"many globals":              {header + globals + section(2, slices.Repeat([]string{"\x00\x00\x00"}, 60)...) + callable, "costs more than its size allows"},
		"many tuples":               {header + tuples + section(5, slices.Repeat([]string{"\x00\x00\x00"}, 60)...), "costs more than its size allows"},
		"values":                    {header + section(12, "\x00"), "values"},
		"an index out of range":     {header + section(2, "\x00\x05\x00"), "core module index 5"},
		"a count that is a lie":     {header + "\x07\x05\xff\xff\xff\xff\x0f", "4294967295 items in 0 bytes"},
		"an unknown section":        {header + "\x20\x00", "section 32"},
		"a module that is imported": {header + section(10, "\x00\x01m\x00\x11\x00"), "it imports a module or component: m"},
		"a nested module":           {header + "\x04\x08\x00asm\x01\x00\x00\x00", "a nested component without a header"},
	} {
		_, err := Link(budget(t, []byte(c.component)), []byte(c.component))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestVersions checks which versions of an interface are the same one.
func TestVersions(t *testing.T) {
	for iface, want := range map[string]string{
		"wasi:io/streams@0.2.0": "wasi:io/streams@0.2", "wasi:io/streams@0.2.11": "wasi:io/streams@0.2", "wasi:io/streams@0.3.0": "wasi:io/streams@0.3",
		"wasi:io/streams@0.2.0-rc-2023-11-10": "wasi:io/streams@0.2.0-rc-2023-11-10", "wasi:config/store@0.2.0-draft": "wasi:config/store@0.2",
		"a:b/c@1.2.3": "a:b/c@1", "a:b/c": "a:b/c", "a:b/c@0.0.3": "a:b/c@0.0.3",
	} {
		if got := versioned(iface); got != want {
			t.Errorf("%s is %s, want %s", iface, got, want)
		}
	}
	// A 0.3 interface with a signature that 0.2 has is not the one of 0.2.
	b := bytes.ReplaceAll(readFixture(t, "values"), []byte("wasi:random/random@0.2.0"), []byte("wasi:random/random@0.3.0"))
	if _, err := Link(budget(t, b), b); err == nil || !strings.Contains(err.Error(), "wasi:random/random@0.3.0, and this host has WASI 0.2") {
		t.Errorf("an interface of WASI 0.3: %v", err)
	}
	if r, ok := errors.AsType[*rewrite.Refusal](func() error { _, err := Link(budget(t, b), b); return err }()); !ok || r.Hint == "" {
		t.Error("a refusal without a hint")
	}
}

// TestMutatedComponents links components with bytes that were changed. None makes the linker panic, and
// none becomes a module that the gate does not understand. With STARLING_NIGHTLY, 21,000 of them.
func TestMutatedComponents(t *testing.T) {
	mutants := treetest.Count(100, 100, 3_500)
	seed := rand.New(rand.NewPCG(1, 2))
	for name := range fixtures {
		b := readFixture(t, name)
		accepted := 0
		for range mutants {
			m := slices.Clone(b)
			for range 1 + seed.IntN(4) {
				switch at := seed.IntN(len(m)); seed.IntN(4) {
				case 0:
					m[at] = byte(seed.Uint32())
				case 1:
					m[at] ^= 1 << seed.IntN(8)
				case 2:
					m = slices.Delete(m, at, min(at+1+seed.IntN(4), len(m)))
				default:
					m = slices.Insert(m, at, m[at])
				}
			}
			out, err := Link(budget(t, m), m)
			if err == nil {
				accepted++
				_, err = rewrite.Rewrite(work.Trusted(context.Background()), out, rewrite.DefaultLimits(), rewrite.Options{})
			}
			if err != nil && strings.Contains(err.Error(), "panics") {
				t.Fatalf("%s: %v", name, err)
			}
		}
		t.Logf("%s: %d mutants were accepted", name, accepted)
	}
}

func FuzzLink(f *testing.F) {
	for name := range fixtures {
		f.Add(readFixture(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Link(budget(t, b), b); err != nil && strings.Contains(err.Error(), "panics") {
			t.Fatal(err)
		}
	})
}

// TestFixtures builds the fixtures again, where the tools are, and compares the bytes.
func TestFixtures(t *testing.T) {
	if testing.Short() {
		t.Skip("the tools are slow")
	}
	treetest.Needs(t, "c")
	treetest.NeedsNPM(t, "testdata")
	dir := t.TempDir()
	if out, err := exec.Command("node", "testdata/build.mjs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name := range fixtures {
		b, err := os.ReadFile(filepath.Join(dir, name+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, readFixture(t, name)) {
			t.Error(fmt.Errorf("%s.wasm is another one than build.mjs makes", name))
		}
	}
}
