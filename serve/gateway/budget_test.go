package gateway

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/work"
)

func TestTemplatesOfServers(t *testing.T) {
	for _, c := range []struct {
		template, uri string
		want          bool
	}{
		{"", "", false}, {"a", "a", true}, {"a", "ab", false}, {"a", "ba", false}, {"a.c", "abc", false}, {"a{", "a{", true}, {"a}{", "a}{", true},
		{"{x}", "", true}, {"{x}", "a\nb", true}, {"f://{x}/b", "f://a/b", true}, {"f://{x}/b", "f://a/b/c", false}, {"f://{x}/b", "f://a/b/b", true},
		{"a{x}a", "a", false}, {"a{x}a", "aa", true}, {"{x}{y}", "ab", true}, {"{x}b{y}b", "b", false}, {"{x}b{y}b", "abcb", true}, {"a{x}c", "bac", false},
		{strings.Repeat("{x}a", 10_000), strings.Repeat("a", 10_000), true}, {strings.Repeat("{x}a", 10_001), strings.Repeat("a", 10_000), false},
	} {
		if got := fits(work.New(t.Context(), work.ForSize(len(c.uri))), c.template, c.uri); got != c.want {
			t.Errorf("%.30q, %.30q: %v", c.template, c.uri, got)
		}
	}
	b := work.New(t.Context(), work.Limits{Steps: 1000, Bytes: 1000})
	long := strings.Repeat("a", 1000)
	for range 1000 {
		fits(b, long, long)
	}
	if b.Spend(0) == nil || fits(b, "a", "a") {
		t.Error("a thousand templates cost as much as one")
	}
}

func TestValuesOfDefinitions(t *testing.T) {
	got := pin{Definition: json.RawMessage(`{"a":[1,{"b/~":"x"}],"c":{}}`)}.values()
	if want := map[string]string{"/a/0": "1", "/a/1/b~1~0": `"x"`, "/c": "{}"}; !maps.Equal(got, want) {
		t.Error(got)
	}
	for _, levels := range []string{"[]", `{"a":` + "}"} { // each level holds all deeper ones
		open, end := levels[:len(levels)-1], levels[len(levels)-1:]
		deep := strings.Repeat(open, 5000) + "1" + strings.Repeat(end, 5000)
		if got := (pin{Definition: json.RawMessage(deep)}).values(); len(got) != 1 || got[""] != deep {
			t.Errorf("%d values of a definition of %d levels", len(got), 5000)
		}
	}
}
