package debug

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Eval returns the variable that an expression names in a frame. An expression is the name of a
// variable, followed by fields and elements, as in list.items[3], or an address, which means the
// four bytes there: a number, such as 0x1000, or a local of WebAssembly with an offset, as in local2+8.
// "&" before it takes the address.
func (s *Session) Eval(f Frame, expression string) (Variable, error) {
	text := strings.TrimSpace(expression)
	name, offset, _ := strings.Cut(text, "+")
	locals := s.Slots(f)
	if i := slices.IndexFunc(locals, func(v Variable) bool { return v.Name == strings.TrimSpace(name) }); i >= 0 {
		n, err := strconv.ParseUint(cmp.Or(strings.TrimSpace(offset), "0"), 0, 32)
		if offset == "" || err != nil {
			return locals[i], err
		}
		text = fmt.Sprint(locals[i].Address + uint32(n))
	}
	if rest, ok := strings.CutPrefix(text, "&"); ok {
		v, err := s.Eval(f, rest)
		if err == nil {
			err = v.NotInMemory(rest)
		}
		return Variable{Name: text, Type: "address", Value: fmt.Sprintf("%#x", v.Address), Address: v.Address, Size: v.Size}, err
	}
	if address, err := strconv.ParseUint(text, 0, 32); err == nil {
		b := s.Memory(uint32(address), 4)
		if len(b) < 4 {
			return Variable{}, fmt.Errorf("%s is not in memory, which has %d bytes", text, s.rec.Size())
		}
		n := binary.LittleEndian.Uint32(b)
		return Variable{Name: strings.TrimSpace(expression), Type: "u32", Value: fmt.Sprintf("%d (%#x)", n, n), Address: uint32(address), Size: 4}, nil
	}
	at := Variable{Children: append(s.Locals(f), s.variables(f)...)}
	path := strings.FieldsFunc(strings.NewReplacer("->", ".", "[", ".[").Replace(text), func(r rune) bool { return r == '.' })
	for _, part := range path {
		i := slices.IndexFunc(at.Children, func(v Variable) bool { return v.Name == part || v.Name == strings.Trim(part, "[]") })
		if i < 0 {
			return Variable{}, fmt.Errorf("there is no %q in %s; see: locals", part, f.Function)
		}
		at = at.Children[i]
	}
	if len(path) == 0 {
		return Variable{}, fmt.Errorf("name a variable or an address")
	}
	return at, nil
}
