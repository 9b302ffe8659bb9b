package config

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decoder is a type that reads its node itself.
type Decoder interface{ DecodeYAML(n *Node) error }

// Checker is a type that looks at its value once it has been decoded.
type Checker interface{ CheckYAML(n *Node) error }

// Decode fills v, which must be a pointer. It knows structs, whose fields have
// tags such as `yaml:"name"` or `yaml:"name,required"` and may be embedded,
// pointers, slices, maps with text as keys, any, scalars, and durations, which
// are text such as 90s. Numbers are zero or more. A field without a key stays as it
// is.
//
// A type other than these is a mistake of the program, and Decode panics.
func (n *Node) Decode(v any) error { return n.into(reflect.ValueOf(v).Elem()) }

// into fills v, whose address can be taken.
func (n *Node) into(v reflect.Value) error {
	if d, ok := v.Addr().Interface().(Decoder); ok {
		return d.DecodeYAML(n)
	}
	if err := n.fill(v); err != nil {
		return err
	}
	if c, ok := v.Addr().Interface().(Checker); ok {
		return c.CheckYAML(n)
	}
	return nil
}

func (n *Node) fill(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return n.into(v.Elem())
	case reflect.Interface:
		if value := n.Value(); value != nil {
			v.Set(reflect.ValueOf(value))
		}
		return nil
	case reflect.Struct:
		return n.intoStruct(v)
	case reflect.Slice:
		return n.intoSlice(v)
	case reflect.Map:
		return n.intoMap(v)
	}
	return n.intoScalar(v)
}

// Expect returns an error unless the node is of the kind.
func (n *Node) Expect(kind Kind) error {
	switch {
	case n.kind == kind:
		return nil
	case n.kind == Null:
		return n.Errorf("leave the key out for the default", "this must be %v, and there is nothing", kind)
	}
	return n.Errorf("", "this must be %v, not %v", kind, n.kind)
}

func (n *Node) intoSlice(v reflect.Value) error {
	if err := n.Expect(List); err != nil {
		return err
	}
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		if err := item.into(list.Index(i)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

func (n *Node) intoMap(v reflect.Value) error {
	if err := n.Expect(Map); err != nil {
		return err
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.items))
	for i, key := range n.keys {
		value := reflect.New(v.Type().Elem()).Elem()
		if err := n.items[i].into(value); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(key.value), value)
	}
	v.Set(m)
	return nil
}

// field is a field of a struct, and whether its key has to be there.
type field struct {
	value    reflect.Value
	required bool
}

// fieldsOf returns the fields of a struct by key, and the keys in their order.
func fieldsOf(v reflect.Value) (fields map[string]field, keys []string) {
	fields = map[string]field{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, rule, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		fields[name] = field{v.FieldByIndex(f.Index), rule == "required"}
		keys = append(keys, name)
	}
	return fields, keys
}

func (n *Node) intoStruct(v reflect.Value) error {
	if err := n.Expect(Map); err != nil {
		return err
	}
	fields, known := fieldsOf(v)
	for i, key := range n.keys {
		f, ok := fields[key.value.(string)]
		if !ok {
			return key.unknown(slices.Sorted(slices.Values(known)))
		}
		if err := n.items[i].into(f.value); err != nil {
			return err
		}
	}
	for _, name := range known {
		if fields[name].required && n.Get(name) == nil {
			return n.Errorf("", "there is no key %q, which is required", name)
		}
	}
	return nil
}

func (n *Node) intoScalar(v reflect.Value) error {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return n.intoDuration(v)
	}
	switch v.Kind() {
	case reflect.String:
		if n.kind == Number || n.kind == Bool {
			return n.Errorf("put it in quotes", "this must be text, not %v", n.kind)
		}
		if err := n.Expect(Text); err != nil {
			return err
		}
		v.SetString(n.value.(string))
		return nil
	case reflect.Bool:
		if err := n.Expect(Bool); err != nil {
			return err
		}
		v.SetBool(n.value.(bool))
		return nil
	case reflect.Int, reflect.Int64:
		return n.intoInt(v)
	case reflect.Float64:
		return n.intoFloat(v)
	}
	panic(fmt.Sprintf("yaml: cannot decode into %v", v.Type()))
}

// intoInt takes whole numbers from zero. Nothing in these files counts below.
func (n *Node) intoInt(v reflect.Value) error {
	if err := n.Expect(Number); err != nil {
		return err
	}
	i, ok := n.value.(int64)
	if !ok || i < 0 || v.OverflowInt(i) {
		return n.Errorf("", "this must be a whole number, zero or more, below 2^%d", v.Type().Bits()-1)
	}
	v.SetInt(i)
	return nil
}

func (n *Node) intoFloat(v reflect.Value) error {
	if err := n.Expect(Number); err != nil {
		return err
	}
	switch x := n.value.(type) {
	case int64:
		v.SetFloat(float64(x))
	case uint64:
		v.SetFloat(float64(x))
	case float64:
		v.SetFloat(x)
	}
	if f := v.Float(); f < 0 || math.IsInf(f, 0) {
		return n.Errorf("", "this must be a number, zero or more")
	}
	return nil
}

// likeDuration is what time.ParseDuration takes, but for signs, bare zeros and
// points without a digit on either side; and whole days, of 24 hours.
var likeDuration = regexp.MustCompile(`^(([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+|[0-9]{1,5}d)$`)

// ParseDuration reads a duration such as 90s, 1m30s or 30d, as all files and flags have it.
func ParseDuration(text string) (time.Duration, error) {
	if !likeDuration.MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 1m30s or 30d", text)
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

func (n *Node) intoDuration(v reflect.Value) error {
	text, _ := n.Text()
	d, err := ParseDuration(text)
	if err != nil {
		return n.Errorf("write a number and a unit, such as 90s, 1m30s or 30d", "this must be a duration")
	}
	v.SetInt(int64(d))
	return nil
}

// Nearest returns the known word that was probably meant, or "": the one that
// takes the fewest changes, at most one for every three characters or part of them, and
// rather one that begins as the word does.
func Nearest(word string, known []string) string {
	best, fewest := "", (len(word)+2)/3+1
	if len(word) > 64 {
		return ""
	}
	for _, k := range known {
		d := distance(word, k)
		if d < fewest || d == fewest && best != "" && best[0] != word[0] && k[0] == word[0] {
			best, fewest = k, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete or replace between a and b, the
// Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
