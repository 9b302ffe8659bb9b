package interp

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// base returns a module with room for a source of 40 bytes at the address 1024, and the section
// that says so.
func base(about string) []byte {
	m := &wasm.Module{}
	m.SetBody(wasm.SectionType, []byte("\x01\x60\x00\x00"))
	m.SetBody(wasm.SectionFunction, []byte("\x01\x00"))
	m.SetBody(wasm.SectionMemory, []byte("\x01\x00\x01"))
	m.SetBody(wasm.SectionGlobal, []byte("\x01\x7f\x00\x41\x80\x08\x0b")) // i32.const 1024
	m.SetBody(wasm.SectionExport, append(wasm.AppendName([]byte{2}, "memory"), append([]byte{2, 0}, append(wasm.AppendName(nil, sourceGlobal), 3, 0)...)...))
	m.SetBody(wasm.SectionDataCount, []byte{1})
	m.SetBody(wasm.SectionCode, []byte("\x01\x02\x00\x0b"))
	m.SetBody(wasm.SectionData, []byte("\x01\x00\x41\x00\x0b\x02hi"))
	if about != "" {
		m.Sections = append(m.Sections, wasm.Section{ID: wasm.SectionCustom, Body: append(wasm.AppendName(nil, Section), about...)})
	}
	return m.Encode()
}

const about = `{"language":"L","name":"N","version":"1.2","source_bytes":40,"depth":7}`

func TestPack(t *testing.T) {
	module := base(about)
	packed, err := Pack(module, File{"a.py", []byte("x = 1\n")}, File{"b/c.py", nil})
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Decode(work.Trusted(context.Background()), packed)
	if err != nil {
		t.Fatal(err)
	}
	const want = "\x20\x00\x00\x00" + "\x04\x00\x00\x00a.py" + "\x06\x00\x00\x00x = 1\n" + "\x06\x00\x00\x00b/c.py" + "\x00\x00\x00\x00"
	if d := m.Data[1]; len(m.Data) != 2 || d.Start.Value != 1024 || string(m.Bytes(d.Pos, d.End)) != want {
		t.Errorf("got %d segments, the last at %d: %q", len(m.Data), d.Start.Value, m.Bytes(d.Pos, d.End))
	}
	if got := Of(packed); got == nil || *got != (About{"L", "N", "1.2", 40, 7}) {
		t.Errorf("the module says %+v of itself", got)
	}
	// All tools of an interpreter share its compiled code.
	shell := func(module []byte) []byte {
		r, err := rewrite.Rewrite(work.Trusted(context.Background()), module, rewrite.DefaultLimits(), rewrite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Wasm
	}
	if !bytes.Equal(shell(module), shell(packed)) {
		t.Error("the source changes the rewritten module")
	}
}

func TestPackRefuses(t *testing.T) {
	if _, err := Pack(base(about), File{"a", []byte(strings.Repeat("x", 28))}); err == nil {
		t.Error("a source of 41 bytes was packed into 40")
	} else if large, ok := errors.AsType[*TooLarge](err); !ok || *large != (TooLarge{41, 40}) {
		t.Error(err)
	}
	if _, err := Pack(base(about), File{"a", []byte(strings.Repeat("x", 27))}); err != nil {
		t.Error(err)
	}
	for name, module := range map[string][]byte{
		"no section": base(""), "a section without JSON": base("{"), "a long section": base(about + strings.Repeat(" ", maxSection)),
		"no module": []byte("\x00asm"), "no sections": []byte("\x00asm\x01\x00\x00\x00"),
	} {
		if _, err := Pack(module, File{"a", nil}); err == nil {
			t.Errorf("%s: packed", name)
		}
		if Of(module) != nil {
			t.Errorf("%s: it says something of itself", name)
		}
	}
}

// TestPythonToolsShareTheirCode: two tools in Python are compiled once, and each has its source.
func TestPythonToolsShareTheirCode(t *testing.T) {
	var code [2][]byte
	for i, text := range []string{"def one() -> int:\n    'One.'\n    return 1\n", "# another tool, with a longer source\n"} {
		module, err := Pack(Python.Wasm(), File{"tool.py", []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := rewrite.Rewrite(work.Trusted(context.Background()), module, rewrite.DefaultLimits(), rewrite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if last := r.Data[len(r.Data)-1].Bytes; !bytes.HasSuffix(last, []byte(text)) {
			t.Errorf("the last data of the module is %.100q", last)
		}
		code[i] = r.Wasm
	}
	if !bytes.Equal(code[0], code[1]) {
		t.Error("the source of a tool changes the code")
	}
}
