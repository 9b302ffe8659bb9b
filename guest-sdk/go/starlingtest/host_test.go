//go:build !wasip1

package starlingtest_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

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
	if again := (starlingtest.Host{}).Call(t, "during", "{}"); !reflect.DeepEqual(first, again) {
		t.Errorf("got %v, and then %v", first, again)
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

func TestFailuresComeBackWhole(t *testing.T) {
	during = func(*starling.Call) (any, error) { return nil, starling.Snooze(2500, errors.New("rate limit")) }
	got := starlingtest.Host{}.Call(t, "during", "{}")
	want := &starling.Error{Kind: starling.KindSnooze, Err: errors.New("rate limit"), RetryAfterMs: 2500}
	if !reflect.DeepEqual(got.Failure, want) || got.Output != "" {
		t.Errorf("%s %#v", got.Output, got.Failure)
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
		if got.Failure == nil || got.Failure.Kind != starling.KindTool || len(got.Exchanges) > 0 {
			t.Errorf("%s: %s %v", name, got.Output, got.Failure)
		}
	}
}

func TestDescribe(t *testing.T) {
	want := []starling.Tool{{Name: "during", InputSchema: `{"type":"object"}`, Effects: []string{"h"}}}
	if got := starlingtest.Describe(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}
