package component

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

const componentHeader = "\x00asm\x0d\x00\x01\x00"

// vector is a list of the binary format, section a section of such a list, and text a name.
func vector(items ...string) string {
	return string(wasm.AppendU32(nil, uint32(len(items)))) + strings.Join(items, "")
}

func raw(id byte, body string) string { return string(append([]byte{id}, sized([]byte(body))...)) }

func listSection(id byte, items ...string) string { return raw(id, vector(items...)) }

func text(name string) string { return string(wasm.AppendName(nil, name)) }

func u32(i int) string { return string(wasm.AppendU32(nil, uint32(i))) }

// each returns n items.
func each(n int, item func(i int) string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = item(i)
	}
	return all
}

func numberedName(i int) string { return "n" + fmt.Sprint(i) }

// nested is a component of n instances of one that has these sections.
func nested(n int, sections ...string) string {
	return raw(4, componentHeader+strings.Join(sections, "")) + listSection(5, each(n, func(int) string { return "\x00\x00\x00" })...)
}

// core is a core module.
func core(sections ...string) string {
	return raw(1, "\x00asm\x01\x00\x00\x00"+strings.Join(sections, ""))
}

// instances are n instances of the core module 0.
func instances(n int) string {
	return listSection(2, each(n, func(int) string { return "\x00\x00\x00" })...)
}

// callable ends a component that has this many core modules and core instances: it exports n
// functions of the last one of the types, which are implemented by a core function of the given type.
func callable(n, modules, instances int, coreType string, types ...string) string {
	module := core(listSection(1, coreType), listSection(3, "\x00"), listSection(7, text("f")+"\x00\x00"), listSection(10, "\x02\x00\x0b"))
	return listSection(7, types...) + module + listSection(2, "\x00"+u32(modules)+"\x00") + listSection(6, "\x00\x00\x01"+u32(instances)+text("f")) +
		listSection(8, "\x00\x00\x00\x00"+u32(len(types)-1)) + listSection(11, each(n, func(i int) string { return "\x00" + text(numberedName(i)) + "\x01\x00\x00" })...)
}

const (
	plain0   = "\x60\x00\x00"     // () -> ()
	address  = "\x60\x01\x7f\x00" // (i32) -> ()
	nothing0 = "\x40\x00\x01\x00" // a function without parameters and results
)

// joined is a component of n instances of a core module with these sections, and a function.
func joined(n int, sections ...string) string {
	return core(sections...) + instances(n) + callable(1, 1, n, plain0, nothing0)
}

// calls is a core module that calls all of its functions, n of each of these types, and is a tool.
func calls(n int, types ...string) string {
	var funcs, bodies []string
	var code strings.Builder
	for t := range types {
		for range n {
			funcs, bodies = append(funcs, u32(t)), append(bodies, "\x02\x00\x0b")
			code.WriteString("\x10" + u32(len(funcs)-1))
		}
	}
	funcs, bodies = append(funcs, u32(len(types))), append(bodies, string(sized([]byte("\x00"+code.String()+"\x0b"))))
	return core(listSection(1, append(types, plain0)...), listSection(3, funcs...), listSection(7, text("f")+"\x00"+u32(len(funcs)-1)), listSection(10, bodies...)) +
		listSection(7, nothing0) + instances(1) + listSection(6, "\x00\x00\x01\x00"+text("f")) + listSection(8, "\x00\x00\x00\x00\x00") + listSection(11, "\x00"+text("f")+"\x01\x00\x00")
}

// multiplying are components that read n things m times, or nest them, by kind.
var multiplying = map[string]func(n, m int) string{
	"exports × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x7f"), listSection(11, each(m, func(i int) string { return "\x00" + text(numberedName(i)) + "\x03\x00\x00" })...))
	},
	"outer aliases × instances": func(n, m int) string {
		return listSection(7, "\x7f") + nested(n, listSection(6, each(m, func(int) string { return "\x03\x02\x01\x00" })...))
	},
	"types × instances": func(n, m int) string {
		return nested(n, listSection(7, each(m, func(int) string { return "\x7f" })...))
	},
	"canonical definitions × instances": func(n, m int) string {
		return nested(n, listSection(8, each(m, func(int) string { return "\x1f" })...))
	},
	"resources × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x3f\x7f\x00"), listSection(8, each(m, func(int) string { return "\x03\x00" })...))
	},
	"imports × instances": func(n, m int) string {
		return raw(4, componentHeader+listSection(10, each(m, func(i int) string { return "\x00" + text(numberedName(i)) + "\x03\x00\x00" })...)) + listSection(7, "\x7f") +
			listSection(5, each(n, func(int) string {
				return "\x00\x00" + vector(each(m, func(i int) string { return text(numberedName(i)) + "\x03\x00" })...)
			})...)
	},
	"inline exports × instances": func(n, m int) string {
		return listSection(7, "\x7f") + listSection(5, each(n, func(int) string {
			return "\x01" + vector(each(m, func(i int) string { return "\x00" + text(numberedName(i)) + "\x03\x00" })...)
		})...)
	},
	"empty sections × instances":    func(n, m int) string { return nested(n, strings.Repeat("\x00\x01\x00", m)) },
	"nested components × instances": func(n, m int) string { return nested(n, strings.Repeat(raw(4, componentHeader), m)) },
	"instances of instances":        func(n, m int) string { return doubled(min(n, 60), 1+m/1000) },
	"a component in a component":    func(n, m int) string { return deep(n * m) },
	"an instance of itself": func(n, m int) string {
		return nested(n, listSection(6, "\x04\x02\x01\x00"), listSection(5, "\x00\x00\x00", "\x00\x00\x00"))
	},
	"a long name × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x7f"), listSection(11, "\x00"+text(strings.Repeat("a", 10*m))+"\x03\x00\x00"))
	},
	"core modules × instances":   func(n, m int) string { return nested(n, strings.Repeat(core(), m)) },
	"core instances × instances": func(n, m int) string { return nested(n, core(), instances(m)) },
	"fields × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x72"+vector(each(m, func(i int) string { return text(numberedName(i)) + "\x7f" })...)))
	},
	"cases × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x71"+vector(each(m, func(i int) string { return text(numberedName(i)) + "\x01\x7f\x00" })...)))
	},
	"names of an enum × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x6d"+vector(each(m, func(i int) string { return text(numberedName(i)) })...)))
	},
	"elements of a tuple × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x6f"+vector(each(m, func(int) string { return "\x7f" })...)))
	},
	"parameters × instances": func(n, m int) string {
		return nested(n, listSection(7, "\x40"+vector(each(m, func(i int) string { return text(numberedName(i)) + "\x7f" })...)+"\x01\x00"))
	},
	"types of types": func(n, m int) string { return listSection(7, types(min(n, 90), 1+m/100)...) },
	"instance types of instance types": func(n, m int) string {
		all := []string{"\x42\x00"}
		for i := range min(n, 90) {
			declared := "\x02\x03\x02\x01" + u32(i)
			for j := range 1 + m/100 {
				declared += "\x04\x00" + text(numberedName(j)) + "\x05\x00"
			}
			all = append(all, "\x42"+u32(2+m/100)+declared)
		}
		return listSection(7, all...) + listSection(10, "\x00"+text("i")+"\x05"+u32(len(all)-1))
	},
	"a chain of instance types": func(n, m int) string {
		all := []string{"\x42\x00"}
		for i := range n * m {
			all = append(all, "\x42\x02\x02\x03\x02\x01"+u32(i)+"\x04\x00"+text("x")+"\x05\x00")
		}
		return listSection(7, all...) + listSection(10, "\x00"+text("i")+"\x05"+u32(len(all)-1))
	},
	"imports of an instance type": func(n, m int) string {
		return listSection(7, "\x42"+u32(m+1)+"\x01\x40\x00\x01\x00"+strings.Join(each(m, func(i int) string { return "\x04\x00" + text(numberedName(i)) + "\x01\x00" }), "")) +
			listSection(10, each(n, func(i int) string { return "\x00" + text(numberedName(i)) + "\x05\x00" })...)
	},
	"functions of a module × instances": func(n, m int) string {
		return joined(n, listSection(1, "\x60\x00\x00"), listSection(3, each(m, func(int) string { return "\x00" })...), listSection(10, each(m, func(int) string { return "\x02\x00\x0b" })...))
	},
	"types of a module × instances": func(n, m int) string {
		return joined(n, listSection(1, each(m, func(int) string { return "\x60\x00\x00" })...))
	},
	"globals of a module × instances": func(n, m int) string {
		return joined(n, listSection(6, each(m, func(int) string { return "\x7f\x00\x41\x00\x0b" })...))
	},
	"a long constant × instances": func(n, m int) string {
		return joined(n, listSection(6, "\x7f\x00"+strings.Repeat("\x41\x00", m+1)+strings.Repeat("\x6a", m)+"\x0b"))
	},
	"exports of a module × instances": func(n, m int) string {
		return joined(n, listSection(1, "\x60\x00\x00"), listSection(3, "\x00"), listSection(7, each(m, func(i int) string { return text(numberedName(i)) + "\x00\x00" })...), listSection(10, "\x02\x00\x0b"))
	},
	"elements of a module × instances": func(n, m int) string {
		return joined(n, listSection(1, "\x60\x00\x00"), listSection(3, "\x00"), listSection(4, "\x70\x00"+u32(m)), listSection(9, "\x00\x41\x00\x0b"+vector(each(m, func(int) string { return "\x00" })...)), listSection(10, "\x02\x00\x0b"))
	},
	"segments of a module × instances": func(n, m int) string {
		return joined(n, listSection(5, "\x00\x01"), listSection(11, each(m, func(int) string { return "\x01\x00" })...))
	},
	"long types of functions": func(n, m int) string {
		return calls(n, "\x60"+vector(each(m, func(int) string { return "\x7f" })...)+"\x00")
	},
	"types of functions": func(n, m int) string {
		return calls(1, each(n*m, func(i int) string {
			return "\x60\x0f" + strings.Map(func(r rune) rune { return 0x7c + r - '0' }, fmt.Sprintf("%015s", strconv.FormatInt(int64(i), 4))) + "\x00"
		})...)
	},
	"names of functions × instances": func(n, m int) string {
		return joined(n, listSection(1, "\x60\x00\x00"), listSection(3, "\x00"), listSection(10, "\x02\x00\x0b"), raw(0, text("name")+raw(1, vector(each(m, func(int) string { return "\x00" + text("a") })...))))
	},
	"an exported instance × its exports": func(n, m int) string {
		return callable(1, 0, 0, plain0, nothing0) + listSection(5, "\x01"+vector(each(m, func(i int) string { return "\x00" + text("["+numberedName(i)) + "\x01\x00" })...)) +
			listSection(11, each(n, func(i int) string { return "\x00" + text("i"+numberedName(i)) + "\x05\x00\x00" })...)
	},
	"a long import × lowered functions": func(n, m int) string {
		lowered := listSection(7, "\x40\x00\x01\x00") + listSection(10, "\x00"+text(strings.Repeat("a", 10*m))+"\x01\x00") + listSection(8, each(n, func(int) string { return "\x01\x00\x00\x00" })...)
		module := core(listSection(1, "\x60\x00\x00"), listSection(2, each(n, func(i int) string { return text("m") + text(numberedName(i)) + "\x00\x00" })...))
		return lowered + module + core(listSection(1, plain0), listSection(3, "\x00"), listSection(7, text("f")+"\x00\x00"), listSection(10, "\x02\x00\x0b")) + listSection(2, "\x01"+vector(each(n, func(i int) string { return text(numberedName(i)) + "\x00" + u32(i) })...), "\x00\x00"+vector(text("m")+"\x12\x00"), "\x00\x01\x00") +
			listSection(6, "\x00\x00\x01\x02"+text("f")) + listSection(8, "\x00\x00"+u32(n)+"\x00\x00") + listSection(11, "\x00"+text("f")+"\x01\x01\x00")
	},
	"comments": func(n, m int) string {
		return callable(1, 0, 0, plain0, nothing0) + raw(0, text("package-docs")+"\x01{\"interfaces\":{"+strings.Join(each(n, func(i int) string {
			return `"` + numberedName(i) + `":{"funcs":{` + strings.Join(each(m, func(i int) string { return `"` + numberedName(i) + `":""` }), ",") + "}}"
		}), ",")+"}}")
	},
	"custom sections": func(n, m int) string {
		return strings.Join(each(n*m, func(i int) string { return raw(0, text(numberedName(i))) }), "")
	},
	"fields of tools": func(n, m int) string {
		return callable(min(n, maxTools), 0, 0, address, "\x40"+vector(each(m, func(i int) string { return text(numberedName(i)) + "\x7f" })...)+"\x01\x00")
	},
	"types of types of a tool": func(n, m int) string {
		t := types(min(n, 24), 2)
		return callable(1, 0, 0, address, append(t, "\x40\x01"+text("v")+u32(len(t)-1)+"\x01\x00")...)
	},
	"a long name in types of types": func(n, m int) string {
		all := []string{"\x72\x01" + text(strings.Repeat("a", m)) + "\x7f"}
		for i := range min(n, 60) {
			all = append(all, "\x6f\x02"+string(wasm.AppendS64(nil, int64(i)))+string(wasm.AppendS64(nil, int64(i))))
		}
		return callable(1, 0, 0, address, append(all, "\x40\x01"+text("v")+string(wasm.AppendS64(nil, int64(len(all)-1)))+"\x01\x00")...)
	},
}

// types are a type, and n types of which each has the one before it this often.
func types(n, often int) []string {
	all := []string{"\x7d"}
	for i := range n {
		all = append(all, "\x6f"+vector(each(often, func(int) string { return string(wasm.AppendS64(nil, int64(i))) })...))
	}
	return all
}

// doubled is a component of instances of one that has instances, and so on.
func doubled(depth, often int) string {
	inner := ""
	for range depth {
		inner = nested(1+often, inner)
	}
	return inner
}

// deep is a component in a component and so on, each with one instance of the next.
func deep(depth int) string {
	inner := ""
	for range min(depth, 2_000) { // the text grows with the square of lengths
		inner = nested(1, inner)
	}
	return inner
}

// TestCostGrowsAsTheBytesDo links components that multiply. Each is linked or refused, and what is
// visited and allocated is bounded by a multiple of its size.
func TestCostGrowsAsTheBytesDo(t *testing.T) {
	for kind, make := range multiplying {
		for _, shape := range [][2]int{{1, 20_000}, {300, 300}, {10_000, 2}} {
			b := []byte(componentHeader + make(shape[0], shape[1]))
			budget := budget(t, b)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := Link(budget, b)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s %v: %d bytes, %d steps, %d allocated: %d out, %.100v", kind, shape, len(b), budget.Steps(), allocated, len(out), err)
			if _, refused := errors.AsType[*rewrite.Refusal](err); err != nil && !refused || err != nil && strings.Contains(err.Error(), "panics") {
				t.Errorf("%s %v: %v", kind, shape, err)
			}
			if most := uint64(32<<20 + 64*len(b)); allocated > most {
				t.Errorf("%s %v: %d bytes are allocated for %d, more than %d", kind, shape, allocated, len(b), most)
			}
		}
	}
}

// TestLinkEndsWithItsContext ends the context of components that take long: soon nothing happens.
func TestLinkEndsWithItsContext(t *testing.T) {
	hungUp := errors.New("hung up")
	for kind, make := range multiplying {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(hungUp)
		budget := work.Trusted(ctx)
		if _, err := Link(budget, []byte(componentHeader+make(300, 300))); !errors.Is(err, hungUp) {
			t.Errorf("%s: %v", kind, err)
		}
		if steps := budget.Steps(); steps > 1<<13 {
			t.Errorf("%s: it takes %d steps after the end", kind, steps)
		}
	}
}
