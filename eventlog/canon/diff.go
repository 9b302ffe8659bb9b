package canon

import (
	"bytes"
	"strconv"
	"strings"
)

// Difference finds the first place, in the order of the bytes, at which two
// items differ: the path to it and what each has there. A nil item means that
// one side has nothing at this path.
//
// Path is written as in tool_schemas[0].sandbox["odd key"]; it is empty when
// the items differ as a whole, and then a and b are returned themselves, as
// they are when one of them is not canonical. The items must not be equal.
func Difference(a, b Raw) (path string, inA, inB Raw) {
	if Valid(a) != nil || Valid(b) != nil {
		return "", a, b
	}
	for {
		step, x, y := firstChild(a, b)
		if step == "" {
			return strings.TrimPrefix(path, "."), a, b
		}
		path, a, b = path+step, x, y
		if a == nil || b == nil {
			return strings.TrimPrefix(path, "."), a, b
		}
	}
}

// firstChild is the first step on the path from a and b to their difference.
// Without one, they are not of one kind, or have no children.
func firstChild(a, b Raw) (step string, x, y Raw) {
	ra, rb := reader{data: a}, reader{data: b}
	ha, _ := ra.head()
	hb, _ := rb.head()
	switch {
	case ha.major != hb.major:
		return "", nil, nil
	case ha.major == majorArray:
		return firstElement(&ra, &rb, ha.arg, hb.arg)
	case ha.major == majorMap:
		return firstMember(&ra, &rb)
	}
	return "", nil, nil
}

func firstElement(a, b *reader, lenA, lenB uint64) (step string, x, y Raw) {
	for i := range max(lenA, lenB) {
		x, y = a.next(), b.next()
		if !bytes.Equal(x, y) {
			return "[" + strconv.FormatUint(i, 10) + "]", x, y
		}
	}
	return "", nil, nil
}

// firstMember goes through two maps side by side. Keys ascend in both, so the
// smaller of two that differ is missing from the other map.
func firstMember(a, b *reader) (step string, x, y Raw) {
	for {
		ka, kb := a.next(), b.next()
		x, y = a.next(), b.next()
		switch {
		case ka == nil && kb == nil:
			return "", nil, nil
		case kb == nil, ka != nil && bytes.Compare(ka, kb) < 0:
			return memberStep(ka), x, nil
		case ka == nil, bytes.Compare(ka, kb) > 0:
			return memberStep(kb), nil, y
		case !bytes.Equal(x, y):
			return memberStep(ka), x, y
		}
	}
}

// next takes the next item, which is known to be valid, or nil at the end.
func (r *reader) next() Raw {
	if r.off == len(r.data) {
		return nil
	}
	at := r.off
	r.skip()
	return r.data[at:r.off]
}

// memberStep writes a key as .name where that is clear and as ["name"] else.
func memberStep(key Raw) string {
	name, ok := Text(key)
	if !ok {
		rendered, _ := Render(key)
		return "[" + string(rendered) + "]"
	}
	if name == "" || strings.ContainsFunc(name, notWord) {
		return "[" + string(AppendString(nil, name)) + "]"
	}
	return "." + name
}

func notWord(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Text returns the text that raw is, or that the bytes of raw are if these can
// be printed.
func Text(raw Raw) (text string, ok bool) {
	if Valid(raw) != nil {
		return "", false
	}
	r := reader{data: raw}
	h, err := r.head()
	if err != nil || h.major != majorText && h.major != majorBytes {
		return "", false
	}
	s, err := r.bytes(h.arg)
	return string(s), err == nil && (h.major == majorText || printable(s))
}
