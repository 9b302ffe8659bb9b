package wit

import (
	"errors"
	"strings"
	"testing"
)

const example = `package demo:text@1.0.0;

/// Types of all tools
interface types {
  /// What was counted
  record stats { words: u32, %list: option<list<string>> }
  enum level { low, high-up }
  flags access { read, write-it }
  variant shape { circle(f64), none }
  resource file { constructor(name: string); read: func() -> string; open: static func() -> file; }
  open: func() -> file;
}

/* a /* nested */ comment */
interface api {
  use types.{stats, level as lvl};
  type pair = tuple<lvl, s8>;
  /** Counts
   * words. */
  @since(version = 1.0.0)
  count: func(s: stats, p: pair, c: char) -> result<_, lvl>;
  @unstable(feature = later)
  later: func() -> string;
}

world tool {
  import wasi:clocks/wall-clock@0.2.0;
  import log: func(text: string);
  use types.{shape, access};
  /// Draws.
  export draw: func(s: shape, a: access, very: u64, many: tuple<u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8>, more: list<u8>) -> f32;
  export api;
  export mine: interface { type name = string; name-of: func(n: name) -> name; }
}
`

const clocks = "package wasi:clocks@0.2.0;\ninterface wall-clock {\n  record datetime { seconds: u64, nanoseconds: u32 }\n  now: func() -> datetime;\n}\n"

func parse(main string) (*World, error) {
	return Parse(map[string][]byte{"a.wit": []byte(main), "deps/clocks.wit": []byte(clocks)})
}

// TestWorld reads a world, and looks at what is written for it. The components that come of it are
// tested in host/internal/component and cmd/starling-host.
func TestWorld(t *testing.T) {
	w, err := parse(example)
	if err != nil {
		t.Fatal(err)
	}
	source, samples := w.Source()
	bindings := string(w.Bindings())
	for _, want := range []string{
		"pub mod demo {\n\n    pub mod text {\n\n        pub mod types {",
		"list: Option<Vec<String>>,",
		"// The type file is not supported.",
		"pub use crate::bindings::demo::text::types::Level as Lvl;",
		"/// Counts\n                    /// words.\n                    fn count(s: Stats, p: Pair, c: char) -> Result<(), Lvl>;",
		`#[export_name = "demo:text/api@1.0.0#count"]`,
		`#[export_name = "mine#name-of"]`,
		"pub unsafe fn export_draw<T: Guest>(at: *mut u8) -> f32 {",
		`#[link(wasm_import_module = "$root")]`,
	} {
		if !strings.Contains(bindings, want) {
			t.Errorf("the bindings lack %s", want)
		}
	}
	if strings.Contains(bindings, "later") || strings.Contains(bindings, "fn open") {
		t.Error("the bindings have what is unstable, or a resource")
	}
	if want := "use bindings::exports::demo::text::api;\nuse bindings::exports::mine;\n"; !strings.Contains(string(source), want) {
		t.Errorf("the source lacks %s:\n%s", want, source)
	}
	if len(samples) != 3 || string(samples[1].Input) != `{"s":{"words":0,"list":null},"p":["low",0],"c":"a"}` || string(samples[1].Output) != "null" {
		t.Errorf("the samples are %s", samples)
	}
	if _, err := w.Component(nil, nil, []string{"draw", "demo:text/api@1.0.0#count"}); err == nil || err.Error() != "the module does not export mine#name-of" {
		t.Errorf("a module that lacks a function: %v", err)
	}
	if _, err := w.Component(nil, [][2]string{{"env", "f"}}, []string{"draw", "demo:text/api@1.0.0#count", "mine#name-of"}); err == nil || err.Error() != "the module imports f of env, which is not a function of the world tool" {
		t.Errorf("a module that imports another function: %v", err)
	}
}

// TestErrors checks where mistakes are, and what is said of them. The # is where the mistake is.
func TestErrors(t *testing.T) {
	world := func(inside string) string { return "package a:b;\nworld w {\n" + inside + "\n}\n" }
	for text, want := range map[string]string{
		"#":                            "the package has no world, which lists what the tool exports",
		"#interface":                   "",
		"package a:b;\n#inteface i {}": `expected package, use, interface or world, found "inteface"`,
		"package #a;":                  "a package has a name such as example:lookup",
		"package a:b@#1.0;":            `expected a version such as 1.0.0, found "1.0"`,
		"package a:b;\ninterface #i { f: func(); }":                                   "the package has no world, which lists what the tool exports: world tool { export i; }",
		"package a:b;\nworld w { export f: func(); }\nworld #x { export f: func(); }": "the package has several worlds: w, x: keep one",
		"package a:b;\n#/* no end":                                                    "the comment has no end",
		"package a:b;\n\"#\x00":                                                       "",
		world("#"):                                                                    "",
		world("export f: func(a: #strin);"):                                           "there is no type strin here",
		world("export f: func(a: list<#>);"):                                          `expected a type, found ">"`,
		world("export f: func(a: #list);"):                                            "",
		world("export f: func(a:#)"):                                                  "",
		world("export f: func(#func: u8);"):                                           `expected the name of a parameter, found the keyword "func": write %func to use it as a name`,
		world("export #Bad-nAme: func();"):                                            `"Bad-nAme" is no name: it has words of letters and digits with - between them, each in one case, and each begins with a letter`,
		world("export #f: func(a: u8, A: u8);"):                                       `the name "A" occurs twice`,
		world("#record r { x: r }\nexport f: func();"):                                "the type r contains itself",
		world("export f: func() -> #stream<u8>;"):                                     "the function f returns a stream, which is not supported",
		world("#resource r;\nexport f: func(x: r);"):                                  "",
		world("export #f: async func();"):                                             "the function f returns an asynchronous function, which is not supported",
		world("export #nothing;"):                                                     "there is no interface nothing in the package a:b",
		world("export #c:d/e@1.0.0;"):                                                 "the package c:d@1.0.0 is not here: put its files below deps/",
		world("import f: func();"):                                                    "",
		world("#record r { }\nexport f: func();"):                                     "record r is empty",
		world("export f: func() -> #tuple<u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8>;"):          "a tuple of 13 types is not supported: it has 1 to 12",
		world("export f: func(x: " + strings.Repeat("list<", 60) + "u8" + strings.Repeat(">", 60) + ");"): "",
	} {
		at := strings.Index(text, "#")
		plain := strings.Replace(text, "#", "", 1)
		_, err := Parse(map[string][]byte{"a.wit": []byte(plain)})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if want == "" {
			continue
		}
		if line := 1 + strings.Count(text[:at], "\n"); e.Line != line || e.Column != at-strings.LastIndex(text[:at], "\n") || e.Reason != want {
			t.Errorf("%q:\n got %v\nwant %d:%d: %s", text, err, line, at-strings.LastIndex(text[:at], "\n"), want)
		}
	}
}

// TestDoubling reads types that double with each line, which nothing may follow as trees.
func TestDoubling(t *testing.T) {
	text := "package a:b;\ninterface i {\n  type t0 = u8;\n"
	for i := range 40 {
		text += "  record t" + string(rune('a'+i%26)) + strings.Repeat("x", i/26) + " { a: " + map[bool]string{true: "u8", false: "t" + string(rune('a'+(i+25)%26)) + strings.Repeat("x", (i-1)/26)}[i == 0] + ", b: " + map[bool]string{true: "u8", false: "t" + string(rune('a'+(i+25)%26)) + strings.Repeat("x", max(i-1, 0)/26)}[i == 0] + " }\n"
	}
	text += "  f: func(x: tnx);\n}\nworld w { export i; }\n"
	w, err := Parse(map[string][]byte{"a.wit": []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	source, _ := w.Source()
	if len(w.Bindings())+len(source) > 100_000 {
		t.Error("the bindings are long")
	}
	if _, err := w.Component(nil, nil, []string{"a:b/i#f"}); err != nil {
		t.Error(err)
	}
}

// FuzzParse reads any text. A world that is read can be written.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add("package a:b;\nworld w { export f: func(x: list<tuple<u8, option<string>>>) -> result; }")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parse(text)
		if err != nil {
			if !errors.As(err, new(*Error)) {
				t.Fatal(err)
			}
			return
		}
		w.Bindings()
		w.Source()
		var exports []string
		for _, e := range w.Exports {
			for _, f := range e.functions() {
				if e.Func != nil {
					exports = append(exports, f.Name)
				} else {
					exports = append(exports, e.Name+"#"+f.Name)
				}
			}
		}
		if _, err := w.Component(nil, nil, exports); err != nil {
			t.Fatal(err)
		}
	})
}
