package event

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/starling-host/starling/eventlog/canon"
)

// absent is what [Diff] shows for a field that one side does not have.
const absent = "(absent)"

// Diff finds the first difference between two payloads in the order of their
// bytes. When there is none, same is true and the rest is empty.
//
// Field is the path to the difference, as in tool_schemas[0].sandbox.module,
// and empty when the payloads as a whole have nothing in common. Want and have
// are the two values there: text is given as it is, so that a caller can point
// at the first character that differs; everything else is rendered as JSON,
// and what a side does not have is "(absent)".
func Diff(expected, got canon.Raw) (field, want, have string, same bool) {
	if bytes.Equal(expected, got) {
		return "", "", "", true
	}
	field, a, b := firstDifference("", expected, got)
	return field, show(a), show(b), false
}

// firstDifference descends into a and b, which differ, as long as they differ
// inside.
func firstDifference(path string, a, b canon.Raw) (string, canon.Raw, canon.Raw) {
	var am, bm map[string]canon.Raw
	if decodeBoth(a, b, &am, &bm) {
		for _, key := range wireOrder(am, bm) {
			if !bytes.Equal(am[key], bm[key]) {
				return firstDifference(join(path, key), am[key], bm[key])
			}
		}
	}
	var as, bs []canon.Raw
	if decodeBoth(a, b, &as, &bs) {
		for i := range max(len(as), len(bs)) {
			if ai, bi := at(as, i), at(bs, i); !bytes.Equal(ai, bi) {
				return firstDifference(path+"["+strconv.Itoa(i)+"]", ai, bi)
			}
		}
	}
	return path, a, b
}

// decodeBoth decodes a and b if both are of v's and w's type.
func decodeBoth[T any](a, b canon.Raw, v, w *T) bool {
	null := func(r canon.Raw) bool { return len(r) == 0 || len(r) == 1 && r[0] == 0xf6 }
	if null(a) || null(b) {
		return false
	}
	return canon.Unmarshal(a, v) == nil && canon.Unmarshal(b, w) == nil
}

// wireOrder returns the keys of both maps in the order of their encodings.
func wireOrder(a, b map[string]canon.Raw) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}

func at(list []canon.Raw, i int) canon.Raw {
	if i < len(list) {
		return list[i]
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// show renders one side of a difference.
func show(v canon.Raw) string {
	if len(v) == 0 {
		return absent
	}
	var text string
	if canon.Unmarshal(v, &text) == nil && v[0]>>5 == 3 {
		return text
	}
	rendered, err := canon.Render(v)
	if err != nil {
		return string(canon.AppendJSONString(nil, err.Error()))
	}
	return string(rendered)
}
