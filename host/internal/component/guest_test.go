package component

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/sandbox"
)

// TestGuestIsBuiltFromItsSource builds the guest side again.
func TestGuestIsBuiltFromItsSource(t *testing.T) {
	version, err := exec.Command("clang", "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("Debian clang version 14.")) {
		t.Skipf("SKIPPED: guest.wasm is built with clang and lld of Debian 12: %v %s", err, version)
	}
	built := filepath.Join(t.TempDir(), "guest.wasm")
	if out, err := exec.Command("guest/build.sh", built).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, guestSide) {
		t.Error("guest.wasm is not what build.sh makes of its source")
	}
}

// TestParts: parts of a component give each other handles, and the wrong use of one ends the
// call. Expected is the output, or what the log says.
func TestParts(t *testing.T) {
	l := load(t, "parts")
	for what, want := range []string{
		`{"output":1070207}`,
		"component: unknown handle",
		"component: unknown handle",
		"component: unknown handle",
		"component: unknown handle",
		"component: a handle of another resource",
		`{"output":1165}`,
		"component: not a character",
		"component: a borrowed handle is not dropped",
	} {
		if got := l.call("run", `{"what":`+string(rune('0'+what))+`}`); !strings.Contains(got, want) {
			t.Errorf("%d: %s, want %s", what, got, want)
		}
	}
}

// TestContext: each task has context slots of its own, from which a post-return reads.
func TestContext(t *testing.T) {
	if got := load(t, "context").call("run", "{}"); got != `{"output":0}` {
		t.Error(got)
	}
}

// TestStaleHalves: a core value of 32 bits has a slot of 64, whose upper half may be of an earlier call.
func TestStaleHalves(t *testing.T) {
	if got := load(t, "stale").call("run", "{}"); got != `{"output":5}` {
		t.Error(got)
	}
}

// TestFloats reads decimals in the middle of two floats or just beside it, and writes floats of
// all sizes: both are exact.
func TestFloats(t *testing.T) {
	l, r := load(t, "values"), rand.New(rand.NewPCG(1, 2))
	for range 150 {
		bits := r.Uint64() &^ (1 << 63)
		if r.IntN(4) == 0 {
			bits >>= 12 + r.IntN(50) // subnormal
		}
		low, high := math.Float64frombits(bits), math.Float64frombits(bits+1)
		if math.IsNaN(high) || high > math.MaxFloat64/2 {
			continue
		}
		middle := new(big.Float).SetPrec(1200).SetFloat64(low)
		text := middle.Quo(middle.Add(middle, big.NewFloat(high)), big.NewFloat(2)).Text('e', 800)
		digits, exponent, _ := strings.Cut(text, "e")
		switch r.IntN(3) {
		case 0:
			text = digits + strings.Repeat("0", r.IntN(30)) + "1e" + exponent
		case 1: // 2.50 is 2.49999...
			digits = strings.TrimRight(digits, "0")
			text = digits[:len(digits)-1] + string(digits[len(digits)-1]-1) + strings.Repeat("9", 1+r.IntN(30)) + "e" + exponent
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := json.Marshal(2 * v)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.ContainsAny(twice, ".e") {
			twice = append(twice, ".0"...)
		}
		if got, want := l.call("double", `{"v":`+text+`}`), `{"output":`+string(twice)+`}`; got != want {
			t.Errorf("twice %s is %s, want %s", text, got, want)
		}
	}
}

// TestTwoNames calls a function that a component exports twice.
func TestTwoNames(t *testing.T) {
	if got, want := load(t, "parts").call("run-too", `{"what":0}`), `{"output":1070207}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPlugin calls a plug-in for Extism, whose host functions are the guest side's.
func TestPlugin(t *testing.T) {
	l := load(t, "plugin")
	l.world.http = func(request string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-B: 1\r\nX-B: 2\r\n\r\n" + request[len(request)-4:]
	}
	for _, c := range [][3]string{
		{"echo", `{"input":"gr\u00fcn"}`, `{"output":"grün"}`},
		{"echo", `{"a":[1,2],"input":"x"}`, `{"output":"{\"a\":[1,2],\"input\":\"x\"}"}`},
		{"copy", `{}`, `{"output":"{}"}`},
		{"team", `{}`, `{"error":{"kind":"tool","message":"no team"}}`},
		{"vars", `{}`, `{"output":"no team"}`},
		{"fetch", `{"input":"body"}`, `{"output":"body"}`},
		{"size", `{}`, `{"output":""}`},
		{"fails", `{}`, `{"error":{"kind":"tool","message":"the plug-in failed"}}`},
	} {
		if got := l.call(c[0], c[1]); got != c[2] {
			t.Errorf("%s(%s): %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// TestACT calls tools of a provider of ACT: they are those that it lists, and CBOR is on its side.
func TestACT(t *testing.T) {
	l := load(t, "act")
	doc, err := l.Describe(t.Context())
	if want := `{"tools":[{"name":"echo","description":"What it gets","input_schema":{"type":"object","properties":{}},"idempotent":true},` +
		`{"name":"parts","description":"Several parts","input_schema":{"type":"object"}},` +
		`{"name":"fails","description":"Fails","input_schema":{"type":"object"}}]}`; err != nil || string(doc) != want {
		t.Errorf("the description is %s %v, want %s", doc, err, want)
	}
	deep := `[{"a":[-1,1.5,0.1,100000.0,5.960464477539063e-8,18446744073709551615],"b":"gr\u00fcn"},null,true,-0.0]`
	for _, c := range [][3]string{
		{"echo", `{"aa":false,"b":` + deep + `}`, `{"output":{"b":` + strings.ReplaceAll(deep, `\u00fc`, "ü") + `,"aa":false}}`},
		{"echo", `{}`, `{"output":{}}`},
		{"parts", `{}`, `{"output":["hé",{"a":1},{"mime-type":null,"data":"AQIDBA=="}]}`},
		{"fails", `{}`, `{"error":{"kind":"tool","message":"std:internal: it broke"}}`},
	} {
		if got := l.call(c[0], c[1]); got != c[2] {
			t.Errorf("%s(%s): %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// TestMCPPlugin calls a plug-in for hyper-mcp, which lists its tools itself.
func TestMCPPlugin(t *testing.T) {
	l := load(t, "mcp")
	doc, err := l.Describe(t.Context())
	if want := `{"tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object","properties":{}}}]}`; err != nil || string(doc) != want {
		t.Errorf("the description is %s %v, want %s", doc, err, want)
	}
	if got, want := l.call("add", `{}`), `{"output":["one",{"type":"image","data":"eA=="}]}`; got != want {
		t.Errorf("the call returned %s, want %s", got, want)
	}
	if got, want := l.call("add", `{"a":1}`), `{"error":{"kind":"tool","message":"bad"}}`; got != want {
		t.Errorf("the call that fails returned %s, want %s", got, want)
	}
}

// TestCommandEnvironment runs a command that looks at its environment. It prints nothing, which
// is no document.
func TestCommandEnvironment(t *testing.T) {
	l := load(t, "command")
	for _, env := range [][]string{{"A=b=c"}, nil} {
		_, err := l.Call(t.Context(), sandbox.Call{Tool: "command", Input: []byte(`{}`), Env: env}, l.world)
		if exited := err != nil && strings.Contains(err.Error(), "exit"); exited != (env == nil) {
			t.Errorf("with %v the command ends with %v", env, err)
		}
	}
}
