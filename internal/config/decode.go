package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
)

// decode fills v from a node that a schema has accepted.
func (n *Node) decode(v reflect.Value) (err error) {
	text, isText := n.Text()
	if to, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && isText {
		if err := to.UnmarshalText([]byte(text)); err != nil {
			return n.Errorf("", "%v", err)
		}
		return nil
	}
	switch to := v.Addr().Interface().(type) {
	case *json.RawMessage:
		_, *to, err = n.JSON()
		return err
	case *canon.Raw:
		*to, _, err = n.JSON()
		return err
	case *time.Duration:
		if *to, err = ParseDuration(text); err != nil {
			return n.Errorf("", "this duration is too long")
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return n.decode(v.Elem())
	case reflect.Slice:
		items := n.items
		if n.kind != List {
			items = []*Node{n}
		}
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
		for i, item := range items {
			if err := item.decode(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.items)))
		for i, key := range n.keys {
			value := reflect.New(v.Type().Elem()).Elem()
			if err := n.items[i].decode(value); err != nil {
				return err
			}
			v.SetMapIndex(reflect.ValueOf(key.value).Convert(v.Type().Key()), value)
		}
	case reflect.Struct:
		return n.decodeStruct(v)
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint64:
		whole, ok := n.value.(int64)
		if isText {
			counted, err := display.ParseCount(text, units)
			if err != nil {
				return n.Errorf("", "this must be below 2^63")
			}
			whole, ok = int64(counted), true
		}
		if !ok || whole < 0 || v.CanInt() && v.OverflowInt(whole) || v.CanUint() && v.OverflowUint(uint64(whole)) {
			return n.Errorf("", "this must be a whole number, zero or more, below 2^63")
		}
		v.Set(reflect.ValueOf(whole).Convert(v.Type()))
	case reflect.String:
		if n.kind == Map {
			_, doc, err := n.JSON()
			v.SetString(string(doc))
			return err
		}
		v.SetString(text)
	default:
		value := reflect.ValueOf(n.Value())
		if !value.IsValid() {
			return nil
		}
		v.Set(value.Convert(v.Type()))
	}
	return nil
}

func (n *Node) decodeStruct(v reflect.Value) error {
	at := map[string][]int{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		for name := range strings.SplitSeq(f.Tag.Get("yaml"), ",") {
			at[name] = f.Index
		}
	}
	for i, key := range n.keys {
		name := key.value.(string)
		if at[name] == nil {
			panic(fmt.Sprintf("config: %v has no field for %q", v.Type(), name))
		}
		if err := n.items[i].decode(v.FieldByIndex(at[name])); err != nil {
			return err
		}
	}
	return nil
}

// likeDuration matches the durations of time.ParseDuration, except for signs, bare zeros
// and points without a digit on either side; and whole days, of 24 hours.
var likeDuration = lazy.Regexp(`^(([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+|[0-9]{1,5}d)$`)

// ParseDuration reads a duration such as 90s, 1m30s or 30d, the form in all files and
// flags.
func ParseDuration(text string) (time.Duration, error) {
	if !likeDuration().MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 1m30s or 30d", text)
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// CallLimits are the limits of a call in a file. The file's schema allows some of them. Zero
// leaves a limit out.
type CallLimits struct {
	Fuel        uint64        `yaml:"fuel"`
	Memory      uint64        `yaml:"memory"`
	Timeout     time.Duration `yaml:"timeout"`
	Deadline    time.Duration `yaml:"deadline"` // the timeout in a policy
	Input       uint64        `yaml:"input"`
	Output      uint64        `yaml:"output"`
	Log         uint64        `yaml:"log"`
	Effects     uint64        `yaml:"effects"`
	EffectBytes uint64        `yaml:"effect_bytes"`
}

// Sandbox returns the limits as they are recorded.
func (l CallLimits) Sandbox() event.SandboxLimits {
	const pageSize = 64 << 10
	return event.SandboxLimits{
		Fuel: l.Fuel, MemoryPages: uint32((l.Memory + pageSize - 1) / pageSize), TimeoutMs: (l.Timeout + l.Deadline).Milliseconds(),
		InputBytes: l.Input, OutputBytes: l.Output, LogBytes: l.Log, Effects: l.Effects, EffectBytes: l.EffectBytes,
	}
}
