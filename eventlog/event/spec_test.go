package event_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// The structs, the tables of event.md and the rules of event.cddl say the same
// thing three times. These tests keep them together.

// field is one line of a struct, table or rule.
type field struct {
	Name     string
	Optional bool
}

var described = []any{
	event.RunStarted{}, event.Caller{}, event.RequestOptions{}, event.ToolSchemaRef{}, event.Sandbox{}, event.SandboxLimits{}, event.BudgetLimits{},
	event.UserMessageAppended{}, event.TurnStarted{}, event.ReasoningEmitted{}, event.AssistantMessageCompleted{},
	event.PlannedToolUse{}, event.ToolCallScheduled{}, event.Workspace{}, event.Mount{}, event.ToolCallCompleted{}, event.ToolCallFailed{},
	event.SideEffectRecorded{}, event.EffectError{}, event.Intent{}, event.NestedCall{}, event.Exchange{}, event.Verdict{}, event.PolicyRef{}, event.ModelFailure{}, event.BudgetExceeded{}, event.RunCompleted{},
	event.RunFailed{}, event.RunCancelled{}, event.RunResumed{},
	event.Encrypted{}, event.EncryptedContent{}, event.EncryptedTotals{},
}

func structFields(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			all = append(all, structFields(f.Type)...)
			continue
		}
		name, option, _ := strings.Cut(f.Tag.Get("cbor"), ",")
		all = append(all, field{name, option != ""})
	}
	return all
}

func structs() map[string][]field {
	all := map[string][]field{}
	for _, v := range described {
		all[reflect.TypeOf(v).Name()] = structFields(reflect.TypeOf(v))
	}
	return all
}

func specLines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "spec", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(b), "\n")
}

func TestTextHasTheFieldsOfTheStructs(t *testing.T) {
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| [^|]+ \\| (always|optional|added) \\|")
	got := map[string][]field{}
	section := ""
	for _, line := range specLines(t, "event.md") {
		if strings.HasPrefix(line, "#") {
			section = strings.TrimLeft(line, "# ")
		} else if m := row.FindStringSubmatch(line); m != nil {
			got[section] = append(got[section], field{m[1], m[2] != "always"})
		}
	}
	if diff := cmp.Diff(structs(), got); diff != "" {
		t.Errorf("structs (-) and tables of event.md (+):\n%s", diff)
	}
}

func TestTextAndCDDLHaveTheKinds(t *testing.T) {
	text := strings.Join(specLines(t, "event.md"), "\n")
	grammar := strings.Join(specLines(t, "event.cddl"), "\n")
	for k := event.KindRunStarted; k.Valid(); k++ {
		if !strings.Contains(text, fmt.Sprintf("\n| %d | %s |", k, k)) {
			t.Errorf("event.md lacks kind %d, %s", k, k)
		}
		if !strings.Contains(grammar, fmt.Sprintf(" Of<%d, %s>", k, k)) {
			t.Errorf("event.cddl lacks kind %d, %s", k, k)
		}
	}
}

// rule is a rule of event.cddl, of the few forms that occur there.
type rule struct {
	fields []field
	types  map[string]string // of each field
}

func cddlRules(t *testing.T) map[string]rule {
	begin := regexp.MustCompile(`^([A-Za-z]+) = \{$`)
	member := regexp.MustCompile(`^  (\? )?([a-z_]+): (.+),$`)
	rules := map[string]rule{}
	name := ""
	for _, line := range specLines(t, "event.cddl") {
		if m := begin.FindStringSubmatch(line); m != nil {
			name = m[1]
			rules[name] = rule{types: map[string]string{}}
		} else if m := member.FindStringSubmatch(line); m != nil && name != "" {
			r := rules[name]
			r.fields = append(r.fields, field{m[2], m[1] != ""})
			r.types[m[2]] = m[3]
			rules[name] = r
		} else if line == "}" {
			name = ""
		}
	}
	return rules
}

func TestCDDLHasTheFieldsOfTheStructs(t *testing.T) {
	got := map[string][]field{}
	for name, r := range cddlRules(t) {
		got[name] = r.fields
	}
	if diff := cmp.Diff(structs(), got); diff != "" {
		t.Errorf("structs (-) and rules of event.cddl (+):\n%s", diff)
	}
}

// Every payload of the vectors, and of the Starling runtime's logs where they
// are at hand, must match its rule.
func TestPayloadsMatchTheCDDL(t *testing.T) {
	rules := cddlRules(t)
	for _, cases := range [][]eventCase{minimal, full, edges} {
		for _, c := range cases {
			checkRule(t, rules, c.name, c.payload.EventKind().String(), encode(t, c.payload))
		}
	}
	t.Run("Starling runtime", func(t *testing.T) {
		for i, ref := range references(t) {
			e, err := event.Unmarshal(ref.envelope)
			if err != nil {
				t.Fatal(err)
			}
			checkRule(t, rules, fmt.Sprintf("line %d", i+1), e.Kind.String(), e.Payload)
		}
	})
}

func checkRule(t *testing.T, rules map[string]rule, where, name string, raw canon.Raw) {
	t.Helper()
	r, ok := rules[name]
	if !ok {
		return // a reserved kind
	}
	var got map[string]canon.Raw
	if err := canon.Unmarshal(raw, &got); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	for _, f := range r.fields {
		value, present := got[f.Name]
		delete(got, f.Name)
		if present {
			checkType(t, rules, where+": "+name+"."+f.Name, r.types[f.Name], value)
		} else if !f.Optional {
			t.Errorf("%s: %s lacks %s", where, name, f.Name)
		}
	}
	for key := range got {
		t.Errorf("%s: %s has no %s", where, name, key)
	}
}

func checkType(t *testing.T, rules map[string]rule, where, typ string, raw canon.Raw) {
	t.Helper()
	if inner, ok := strings.CutSuffix(typ, " / null"); ok {
		if len(raw) == 1 && raw[0] == 0xf6 {
			return
		}
		typ = inner
	}
	if element, ok := strings.CutPrefix(strings.TrimSuffix(typ, "]"), "["); ok {
		checkArray(t, rules, where, element, raw)
		return
	}
	if _, ok := rules[typ]; ok {
		checkRule(t, rules, where, typ, raw)
		return
	}
	var v any
	if err := canon.Unmarshal(raw, &v); err != nil || !matches(v, typ) {
		t.Errorf("%s: %v (%T) is not %s: %v", where, v, v, typ, err)
	}
}

func checkArray(t *testing.T, rules map[string]rule, where, element string, raw canon.Raw) {
	t.Helper()
	occurrence, typ, _ := strings.Cut(element, " ")
	var list []canon.Raw
	if err := canon.Unmarshal(raw, &list); err != nil || raw[0] == 0xf6 || occurrence == "+" && len(list) == 0 {
		t.Errorf("%s: %x is not [%s]: %v", where, []byte(raw), element, err)
	}
	for _, item := range list {
		checkType(t, rules, where, typ, item)
	}
}

func matches(v any, typ string) bool {
	i, isInt := v.(int64)
	b, isBytes := v.([]byte)
	switch typ {
	case "value":
		return true
	case "1":
		return isInt && i == 1
	case "tstr":
		_, ok := v.(string)
		return ok
	case "bool":
		_, ok := v.(bool)
		return ok
	case "float":
		_, ok := v.(float64)
		return ok
	case "bstr":
		return isBytes
	case "hash":
		return isBytes && len(b) == 32
	case "uint":
		return isInt && i >= 0
	case "uint32":
		return isInt && i >= 0 && i <= math.MaxUint32
	case "int64":
		return isInt
	}
	return false
}
