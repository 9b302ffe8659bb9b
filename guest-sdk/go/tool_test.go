package starling_test

import (
	"fmt"
	"strings"
	"testing"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

func nothing(*starling.Call, []byte) ([]byte, error) { return nil, nil }

func TestRegisterPanics(t *testing.T) {
	starling.Register(starling.Tool{Name: "taken", Execute: nothing})
	for _, c := range []struct {
		name string
		tool starling.Tool
		want string
	}{
		{"without a name", starling.Tool{Execute: nothing}, `tool "": the name must match`},
		{"a name with a capital", starling.Tool{Name: "Dice", Execute: nothing}, "the name must match"},
		{"a name that begins with a digit", starling.Tool{Name: "2dice", Execute: nothing}, "the name must match"},
		{"a name with a space", starling.Tool{Name: "a b", Execute: nothing}, "the name must match"},
		{"a name of 65 bytes", starling.Tool{Name: strings.Repeat("a", 65), Execute: nothing}, "the name must match"},
		{"a name that is taken", starling.Tool{Name: "taken", Execute: nothing}, `tool "taken": the name is taken`},
		{"without Execute", starling.Tool{Name: "a"}, "Execute is nil"},
		{"a long description", starling.Tool{Name: "a", Description: strings.Repeat("x", 4097), Execute: nothing}, "the description has 4097 bytes, the limit is 4096"},
		{"a description that is not UTF-8", starling.Tool{Name: "a", Description: "\xff", Execute: nothing}, "not UTF-8"},
		{"a negative limit", starling.Tool{Name: "a", Limits: starling.Limits{TimeoutMs: -1}, Execute: nothing}, "TimeoutMs is negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want %q", got, c.want)
				}
			}()
			starling.Register(c.tool)
		})
	}
}

func TestRegisterAcceptsTheWholeAlphabetOfNames(t *testing.T) {
	starling.Register(starling.Tool{Name: "a" + strings.Repeat("z-_9", 15) + "abc", Execute: nothing})
}

func TestHostCallsFailOutsideACall(t *testing.T) {
	for name, open := range map[string]func(){
		"the clock":  func() { starling.Now() },
		"randomness": func() { starling.Random() },
		"HTTP":       func() { _, _ = starling.Get("http://example.com/") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, "no host") {
					t.Errorf("panic %q", got)
				}
			}()
			open()
		})
	}
}

func TestNilErrorsStayNil(t *testing.T) {
	for name, err := range map[string]error{
		"transient": starling.Transient(nil), "cancel": starling.Cancel(nil),
		"discard": starling.Discard(nil), "snooze": starling.Snooze(5, nil),
	} {
		if err != nil {
			t.Errorf("%s of nil is %v", name, err)
		}
	}
}
