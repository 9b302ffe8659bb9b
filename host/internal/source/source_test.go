package source

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
)

// compiled returns the module that clang makes of testdata/points.c.
func compiled(t testing.TB, flags ...string) string {
	t.Helper()
	treetest.Needs(t, "c")
	out := filepath.Join(t.TempDir(), "points.wasm")
	text, err := exec.Command("clang", append(flags, "--target=wasm32-wasi", "-mexec-model=reactor", "-o", out, "testdata/points.c")...).CombinedOutput()
	if err != nil {
		t.Fatalf("clang: %v\n%s", err, text)
	}
	return out
}

func opened(t testing.TB, path string) *Table {
	t.Helper()
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Open(budget(len(module)), module)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestDWARF compares the lines of every instruction, inlined functions too, with llvm-symbolizer's.
func TestDWARF(t *testing.T) {
	treetest.Needs(t, "symbolize")
	for _, flags := range [][]string{{"-gdwarf-4", "-O2"}, {"-gdwarf-5", "-O2"}, {"-gdwarf-5", "-O0"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			path := compiled(t, flags...)
			table := opened(t, path)
			compareWithLLVM(t, table, path)
			text, _ := os.ReadFile("testdata/points.c")
			line := 1 + slices.Index(strings.Split(string(text), "\n"), "\treturn total;")
			all, found := table.Addresses("points.c", line)
			if len(all) == 0 || found != line {
				t.Fatalf("line %d is found as %d, at %d places", line, found, len(all))
			}
			if slid, found := table.Addresses("points.c", line-1); found != line && found != line-1 || found == line && !slices.Equal(slid, all) {
				t.Errorf("line %d is found as %d, at %#x", line-1, found, slid)
			}
			if all, found := table.Addresses("points.c", 10_000); len(all) > 0 || found != 0 {
				t.Errorf("a line behind the last one is found as %d", found)
			}
			for _, at := range all {
				if p := table.Lines(at)[0]; p.Line != line || p.Function != "sum" || filepath.Base(p.File) != "points.c" {
					t.Errorf("the line of address %#x is %v", at, p)
				}
			}
		})
	}
}

// compareWithLLVM compares every 7th instruction's lines.
func compareWithLLVM(t *testing.T, table *Table, path string) {
	t.Helper()
	var offsets []uint32
	var input strings.Builder
	for i := range table.module.Code {
		_, it, _ := table.module.Body(i, nil)
		for n := 0; it.Next(); n++ {
			if n%7 == 0 {
				offsets = append(offsets, uint32(it.Instr.Pos))
				fmt.Fprintf(&input, "%#x\n", uint32(it.Instr.Pos)-table.dwarf.base)
			}
		}
	}
	cmd := exec.Command("llvm-symbolizer", "--obj="+path, "--inlines", "--functions=short")
	cmd.Stdin = strings.NewReader(input.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i, block := range strings.Split(strings.TrimSpace(string(out)), "\n\n") {
		lines := strings.Split(block, "\n")
		places := table.Lines(offsets[i])
		if lines[1] == "??:0:0" {
			continue
		}
		if len(places) != len(lines)/2 {
			t.Errorf("%#x: %d places %v, LLVM has %s", offsets[i], len(places), places, block)
			continue
		}
		for j, p := range places {
			file, line, _ := strings.Cut(filepath.Clean(lines[2*j+1]), ":")
			if strings.HasPrefix(line, "0:") {
				continue // LLVM does not look for another
			}
			if got, want := fmt.Sprintf("%s %s %d:%d", p.Function, filepath.Base(p.File), p.Line, p.Column), lines[2*j]+" "+filepath.Base(file)+" "+line; got != want {
				t.Errorf("%#x, place %d: %s, LLVM has %s", offsets[i], j, got, want)
			}
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("%d lines compared", compared)
	}
}

// TestTrim compares what is left of a module with what it was.
func TestTrim(t *testing.T) {
	for _, flags := range [][]string{{"-gdwarf-4", "-O2"}, {"-gdwarf-5", "-O2"}} {
		module, _ := os.ReadFile(compiled(t, flags...))
		trimmed, err := Trim(budget(len(module)), module, func(file string) bool { return file == "testdata/points.c" })
		if err != nil || len(trimmed) > 12_000 || len(module) < 50_000 {
			t.Fatalf("%d bytes of %d, error %v", len(trimmed), len(module), err)
		}
		all, err := Open(budget(len(module)), module)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := Open(budget(len(trimmed)), trimmed)
		if err != nil {
			t.Fatal(err)
		}
		state := State{Locals: make([]uint64, 8), Globals: make([]uint64, 2), Memory: make([]byte, 1<<16)}
		compared := 0
		for i := range all.module.Code {
			_, it, _ := all.module.Body(i, nil)
			for it.Next() {
				at := uint32(it.Instr.Pos)
				want, got := all.Lines(at), kept.Lines(at)
				if strings.HasSuffix(want[0].File, "points.c") {
					compared++
					if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(kept.Variables(budget(1<<20), at, state), all.Variables(budget(1<<20), at, state)) {
						t.Fatalf("%#x: %v, %+v, before %v, %+v", at, got, kept.Variables(budget(1<<20), at, state), want, all.Variables(budget(1<<20), at, state))
					}
				} else if got[0].File != "" {
					t.Errorf("%#x: %v", at, got)
				}
			}
		}
		if compared < 100 {
			t.Errorf("%d places compared", compared)
		}
	}
}

// FuzzOpen reads modules with broken information.
func FuzzOpen(f *testing.F) {
	for _, flags := range [][]string{{"-gdwarf-4", "-O2"}, {"-gdwarf-5", "-O1"}} {
		module, _ := os.ReadFile(compiled(f, flags...))
		f.Add(module)
	}
	f.Fuzz(func(t *testing.T, module []byte) { checkHostile(module) })
}

// checkHostile uses all of a table.
func checkHostile(module []byte) {
	table, err := Open(budget(len(module)), module)
	if err != nil {
		return
	}
	state := State{Locals: make([]uint64, 8), Globals: make([]uint64, 2), Memory: module}
	for offset := 0; offset < len(module); offset += 1 + len(module)/100 {
		for _, p := range table.Lines(uint32(offset)) {
			table.Addresses(p.File, p.Line)
			table.Entries(p.Function)
		}
		if offset%8 == 0 {
			table.Variables(budget(1<<20), uint32(offset), state)
		}
	}
}

// TestHostile changes bytes of the information of real modules.
func TestHostile(t *testing.T) {
	var modules [][]byte
	for _, flags := range [][]string{{"-gdwarf-4", "-O2"}, {"-gdwarf-5", "-O1"}} {
		module, _ := os.ReadFile(compiled(t, flags...))
		trimmed, _ := Trim(budget(len(module)), module, func(string) bool { return true })
		modules = append(modules, module, trimmed)
	}
	for _, module := range modules {
		table, err := Open(budget(len(module)), module)
		if err != nil {
			t.Fatal(err)
		}
		from := table.module.Section(wasm.SectionData).Offset
		for i := range 200 {
			changed := slices.Clone(module)
			for j := range 1 + i%5 {
				h := (i*7919 + j*104729) % (len(module) - from)
				changed[from+h] = byte(i>>3) ^ byte(j*0x55)
			}
			checkHostile(changed)
		}
	}
}
