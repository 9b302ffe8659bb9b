//go:build !wasip1

package starlingtest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

// during is the body of the tool "during".
var during func(*starling.Call) (any, error)

func init() {
	starling.Register(starling.Tool{Name: "during", Effects: []string{"h"}, Execute: func(call *starling.Call, _ []byte) ([]byte, error) {
		value, err := during(call)
		if err != nil {
			return nil, err
		}
		return json.Marshal(value)
	}})
}

func TestTheZeroHostIsTheSameInEachCall(t *testing.T) {
	during = func(c *starling.Call) (any, error) {
		_, err := starling.Get("http://h/")
		first, second := starling.Random(), starling.Random()
		return []any{starling.Now(), starling.Now(), first != second, c, errors.Is(err, starling.ErrDenied)}, nil
	}
	first := starlingtest.Host{}.Call(t, "during", "{}")
	want := `[1767225600000000000,1767225600000001000,true,{"RunID":"run","CallID":"call","Attempt":1,"Variables":null},true]`
	if first.Output != want {
		t.Errorf("got %s %v", first.Output, first.Failure)
	}
	if diff := cmp.Diff(first, starlingtest.Host{}.Call(t, "during", "{}")); diff != "" {
		t.Error(diff)
	}
}

func TestAHostThatIsSetUp(t *testing.T) {
	during = func(c *starling.Call) (any, error) {
		resp, err := starling.Get("http://h/path")
		if err != nil {
			return nil, err
		}
		return []any{starling.Now(), starling.Random(), string(c.Variables), c.Attempt, resp.Status}, nil
	}
	host := starlingtest.Host{
		Now:    time.Unix(5, 0),
		Random: func() uint64 { return 7 },
		HTTP:   http.RedirectHandler("/other", http.StatusFound),
		Info:   starling.Call{Attempt: 2, Variables: []byte(`{"tenant":"t1"}`)},
	}
	got := host.Call(t, "during", "{}")
	if want := `[5000000000,7,"{\"tenant\":\"t1\"}",2,302]`; got.Output != want {
		t.Errorf("got %s %v", got.Output, got.Failure)
	}
}

// TestTimeIsTheMachinesUnlessTheTestIsASynctest checks README.md's statements about package
// time.
func TestTimeIsTheMachinesUnlessTheTestIsASynctest(t *testing.T) {
	during = func(*starling.Call) (any, error) {
		begin := time.Now()
		time.Sleep(time.Millisecond)
		return []any{begin, time.Since(begin)}, nil
	}
	call := func(t *testing.T) (begin time.Time, slept time.Duration) {
		host := starlingtest.Host{Now: time.Unix(5, 0)}
		if err := json.Unmarshal([]byte(host.Call(t, "during", "{}").Output), &[]any{&begin, &slept}); err != nil {
			t.Error(err)
		}
		return begin, slept
	}
	if begin, slept := call(t); begin.Year() < 2026 || slept < time.Millisecond {
		t.Errorf("slept %s from %s on", slept, begin)
	}
	synctest.Test(t, func(t *testing.T) {
		if begin, slept := call(t); begin.UTC().Year() != 2000 || slept != time.Millisecond {
			t.Errorf("in a synctest, slept %s from %s on", slept, begin)
		}
	})
}

func TestFailuresComeBackWhole(t *testing.T) {
	during = func(*starling.Call) (any, error) { return nil, starling.Snooze(2500, errors.New("rate limit")) }
	got := starlingtest.Host{}.Call(t, "during", "{}")
	want := &abi.Error{Kind: abi.ErrorSnooze, Message: "rate limit", RetryAfterMs: 2500}
	if diff := cmp.Diff(want, got.Failure); diff != "" || got.Output != "" {
		t.Errorf("%s %s", got.Output, diff)
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	for name, message := range map[string]string{
		"no request":         "hello",
		"a relative target":  "GET /path HTTP/1.1\r\nHost: h\r\n\r\n",
		"a body cut short":   "POST http://h/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhi",
		"more than the body": "POST http://h/ HTTP/1.1\r\nContent-Length: 1\r\n\r\nhi",
	} {
		during = func(*starling.Call) (any, error) { return starling.HTTP([]byte(message)) }
		got := starlingtest.Host{HTTP: http.NotFoundHandler()}.Call(t, "during", "{}")
		if got.Failure == nil || got.Failure.Kind != abi.ErrorTool || len(got.Exchanges) > 0 {
			t.Errorf("%s: %s %v", name, got.Output, got.Failure)
		}
	}
}

func TestDescribe(t *testing.T) {
	want := abi.Description{Tools: []abi.ToolDescription{{Name: "during", InputSchema: abi.JSON(`{"type":"object"}`), Effects: []string{"h"}}}}
	if diff := cmp.Diff(want, starlingtest.Describe(t)); diff != "" {
		t.Error(diff)
	}
}
