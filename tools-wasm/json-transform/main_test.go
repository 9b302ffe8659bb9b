package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

// call runs a program over data, both as JSON text.
func call(t *testing.T, query, data, args string) starlingtest.Result {
	t.Helper()
	quoted, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	input := fmt.Sprintf(`{"query":%s,"data":%s`, quoted, data)
	if args != "" {
		input += `,"args":` + args
	}
	return starlingtest.Host{}.Call(t, "json_transform", input+"}")
}

func TestTransform(t *testing.T) {
	for _, c := range []struct{ name, query, data, args, want string }{
		{"identity", ".", `{"b":1,"a":[null,true,"x"]}`, "", `[{"a":[null,true,"x"],"b":1}]`},
		{"several results", ".[]", `[1,"a",null]`, "", `[1,"a",null]`},
		{"no result", "empty", `1`, "", `[]`},
		{"a sum", ".items | map(.price) | add", `{"items":[{"price":1},{"price":2.5}]}`, "", `[3.5]`},
		{"grouping", "group_by(.k) | map({k: .[0].k, n: length})", `[{"k":"b"},{"k":"a"},{"k":"b"}]`, "", `[[{"k":"a","n":1},{"k":"b","n":2}]]`},
		{"variables", ".[:$limit] + [$name.first]", `[1,2,3]`, `{"limit":2,"name":{"first":"Ada"}}`, `[[1,2,"Ada"]]`},
		{"functions of the program's own", "def now: 7; def f(x): x + now; f(.)", `1`, "", `[8]`},
		{"integers beyond 64 bits are exact", ". + 1", `99999999999999999999999`, "", `[100000000000000000000000]`},
		{"numbers keep their spelling", ".", `[1.0,1e2,0.10,-0,18446744073709551615]`, "", `[[1.0,1e2,0.10,-0,18446744073709551615]]`},
		{"times are in UTC", `0 | localtime | mktime, (0 | strflocaltime("%H %Z"))`, `null`, "", `[0,"00 UTC"]`},
		{"there is no environment", "[env, $ENV]", `null`, "", `[[{},{}]]`},
		{"a failure that is caught", `try now catch "no clock"`, `null`, "", `["no clock"]`},
		{"halt ends the program", "1, halt, 2", `null`, "", `[1]`},
		{"text beyond ASCII", `ascii_upcase + "é😀"`, `"<a>&"`, "", `["<A>&é😀"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := call(t, c.query, c.data, c.args)
			if want := `{"results":` + c.want + `}`; got.Failure != nil || got.Output != want {
				t.Errorf("got  %s %v\nwant %s", got.Output, got.Failure, want)
			}
		})
	}
}

func TestDiscards(t *testing.T) {
	deep := strings.Repeat("[", 62) + strings.Repeat("]", 62)
	for _, c := range []struct{ name, query, data, args, want string }{
		{"a syntax error", ".a |\n  é ]", `1`, "", "query: line 2, column 3: unexpected token"},
		{"a program that ends early", "map(", `1`, "", "query: line 1, column 5: unexpected EOF"},
		{"an unknown function", "nosuch(1)", `1`, "", "query: function not defined: nosuch/1"},
		{"an unknown variable", "$limit", `1`, "", "query: variable not defined: $limit"},
		{"a type error", ".[0]", `{"a":1}`, "", "query: expected an array but got: object"},
		{"an error of the program's own", `error("stop")`, `1`, "", "query: error: stop"},
		{"halt_error", `"bad" | halt_error`, `1`, "", "query: halt error: bad"},
		{"the clock", "now", `1`, "", "now is not available"},
		{"the clock behind a builtin", "now | todate", `1`, "", "now is not available"},
		{"more input", "input", `1`, "", "input(s)/0 is not allowed"},
		{"a module", `include "x"; .`, `1`, "", `query: cannot load module: "x"`},
		{"debug output", "debug", `1`, "", "function not defined: debug/0"},
		{"a file's name", "input_filename", `1`, "", "function not defined: input_filename/0"},
		{"a name that is no variable", ".", `1`, `{"a-b":1}`, `args: "a-b" is not the name of a variable`},
		{"args that are no object", ".", `1`, `[1]`, "input: json: cannot unmarshal array"},
		{"too many results", "range(infinite)", `1`, "", "query: more than 10000 results"},
		{"a result that is too large", `"x" * 1000001`, `1`, "", "query: the results have more than 1000000 bytes"},
		{"results that are too large together", `range(20) | "x" * 60000`, `1`, "", "query: the results have more than 1000000 bytes"},
		{"a result that doubles sixty times", "reduce range(50) as $i (0; [., .])", `1`, "", "query: the results have more than 1000000 bytes"},
		{"a result that is too deep", ".", deep, "", "query: a result nests too deep"},
		{"a result that is very deep", "reduce range(100000) as $i (0; [.])", `1`, "", "query: a result nests too deep"},
		{"a long program", strings.Repeat(" ", 16385) + ".", `1`, "", "query: 16386 bytes, the limit is 16384"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := call(t, c.query, c.data, c.args)
			if got.Failure == nil || got.Failure.Kind != starling.KindDiscard || !strings.Contains(got.Failure.Error(), c.want) {
				t.Errorf("got  %.200s %+v\nwant %s", got.Output, got.Failure, c.want)
			}
			if len(got.Exchanges) > 0 {
				t.Error(got.Exchanges)
			}
		})
	}
}

func TestInputIsStrict(t *testing.T) {
	for name, input := range map[string]string{"an unknown member": `{"query":".","data":1,"x":1}`, "a list": `[]`, "a number for a query": `{"query":1,"data":1}`} {
		if got := (starlingtest.Host{}).Call(t, "json_transform", input); got.Failure == nil || got.Failure.Kind != starling.KindDiscard {
			t.Errorf("%s: %s %v", name, got.Output, got.Failure)
		}
	}
}
