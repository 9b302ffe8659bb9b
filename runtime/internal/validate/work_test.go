package validate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/work"
)

// multiplying are schemas that cost more than their bytes, in sizes that grow.
var multiplying = map[string]func(n int) string{
	"references of references": func(n int) string {
		defs := ""
		for i := range min(n, 60) {
			defs += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		}
		return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":{}}}`, defs, min(n, 60))
	},
	"one definition, often": func(n int) string {
		return `{"allOf":[` + many(n, `{"$ref":"#/$defs/a","x":%d},`) + `{}],"$defs":{"a":{"properties":{` + many(n, `"p%d":{},`) + `"z":{}}}}}`
	},
	"allOf times properties": func(n int) string { return `{"allOf":[` + many(n, `{"properties":{"a%d":{},"b":{}}},`) + `{}]}` },
	"booleans":               func(n int) string { return `{"prefixItems":[` + strings.Repeat("true,", n) + `true]}` },
	"enums times properties": func(n int) string { return `{"properties":{` + many(n, `"p%d":{"enum":["a","b",1]},`) + `"z":{}}}` },
	"repetitions": func(n int) string {
		return `{"properties":{` + many(n, `"p%d":{"pattern":"^(a|bc|[^d]){900}$"},`) + `"z":{}}}`
	},
	"repetitions of letters": func(n int) string { return `{"patternProperties":{` + many(n, `"^\\pL{1,9}%d$":{},`) + `"z":{}}}` },
	"alternations": func(n int) string {
		return `{"pattern":"` + strings.Repeat("(?:a|b|", n) + "c" + strings.Repeat("){2}", min(n, 9)) + strings.Repeat(")", n-min(n, 9)) + `"}`
	},
	"classes":                 func(n int) string { return `{"pattern":"[` + strings.Repeat(`\\pL`, n) + `]"}` },
	"ranges that ignore case": func(n int) string { return `{"pattern":"(?i)` + strings.Repeat(`[B-\\x{1e942}]`, n) + `"}` },
}

// TestSchemasThatMultiply: each schema is compiled within a budget of its size, or refused; and what
// it keeps is what the budget holds.
func TestSchemasThatMultiply(t *testing.T) {
	for name, schema := range multiplying {
		refused := 0
		for n := 4; n <= 4096; n *= 4 {
			doc := []byte(schema(n))
			if len(doc) > maxSchemaBytes {
				break
			}
			limits := work.ForSize(len(doc))
			b := work.New(t.Context(), limits)
			s, err := Compile(b, doc)
			switch {
			case err != nil && strings.Contains(err.Error(), work.ErrExceeded.Error()):
				refused++
			case err != nil && (n < 1000 || errors.Is(err, context.Canceled)):
				t.Errorf("%s of %d: %.200v", name, n, err)
			case err == nil && refused > 0:
				t.Errorf("%s of %d: it is compiled, and a smaller one is refused", name, n)
			case err == nil && (int64(s.Size()) > limits.Bytes || b.Steps() < int64(n)/2):
				t.Errorf("%s of %d: %d steps, %d bytes kept", name, n, b.Steps(), s.Size())
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := Compile(work.New(ended, limits), doc); err == nil {
				t.Errorf("%s of %d: it is compiled after its context has ended", name, n)
			}
		}
		t.Logf("%s: %d refused", name, refused)
	}
}
