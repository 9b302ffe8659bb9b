//go:build go1.25 && !wasip1

package starlingtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlinghttp"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

// TestTimeIsVirtual: a tool that waits for an hour, by each way of package time, takes no time and
// reads the same clock in every call.
func TestTimeIsVirtual(t *testing.T) {
	during = func(*starling.Call) (any, error) {
		begin := time.Now().UTC()
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		<-ctx.Done()
		ticker := time.NewTicker(time.Minute)
		for range 60 {
			<-ticker.C
		}
		fired := make(chan time.Duration)
		time.AfterFunc(time.Hour, func() { fired <- time.Since(begin) })
		return []any{begin, (<-fired).String(), starling.Now()}, nil
	}
	for _, now := range []time.Time{{}, time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC), time.Date(1970, 1, 1, 0, 0, 5, 0, time.UTC)} {
		began, clock := time.Now(), now
		switch {
		case now.IsZero():
			now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			clock = now
		case now.Year() < 2000:
			clock = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		want := fmt.Sprintf(`[%q,"4h0m0s",%d]`, clock.Format(time.RFC3339Nano), now.UnixNano())
		if got := (starlingtest.Host{Now: now}).Call(t, "during", "{}"); got.Output != want {
			t.Errorf("got %s %v, want %s", got.Output, got.Failure, want)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("took %s", took)
		}
	}
}

// TestRetriesTakeNoTime: a slow server is a handler that sleeps.
func TestRetriesTakeNoTime(t *testing.T) {
	during = func(*starling.Call) (any, error) {
		client := http.Client{Transport: starlinghttp.Transport{}, Timeout: 10 * time.Second}
		for wait := time.Second; ; wait *= 2 {
			began := starling.Now()
			resp, err := client.Get("http://h/")
			if err == nil {
				return []any{resp.StatusCode, wait.String(), time.Duration(starling.Now() - began).Truncate(time.Second).String()}, nil
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			time.Sleep(wait)
		}
	}
	tries := 0
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		tries++
		time.Sleep(time.Duration(33-10*tries) * time.Second)
	})
	got := starlingtest.Host{HTTP: slow}.Call(t, "during", "{}")
	if want := `[200,"4s","3s"]`; got.Output != want || len(got.Exchanges) != 3 {
		t.Errorf("got %s %v after %d exchanges, want %s", got.Output, got.Failure, len(got.Exchanges), want)
	}
}

// TestGoroutinesThatAreLeftStandStill: in a module nothing runs after the call.
func TestGoroutinesThatAreLeftStandStill(t *testing.T) {
	during = func(*starling.Call) (any, error) {
		go func() {
			for range time.Tick(time.Second) {
			}
		}()
		return "done", nil
	}
	for range 2 {
		if got := (starlingtest.Host{}).Call(t, "during", "{}"); got.Output != `"done"` {
			t.Errorf("got %s %v", got.Output, got.Failure)
		}
	}
}

// TestATestMayHaveABubble: there the clock is that of the test.
func TestATestMayHaveABubble(t *testing.T) {
	during = func(*starling.Call) (any, error) {
		begin := time.Now()
		time.Sleep(time.Minute)
		return []any{begin.UTC(), time.Since(begin).String()}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		if got := (starlingtest.Host{}).Call(t, "during", "{}"); got.Output != `["2000-01-01T00:00:00Z","1m0s"]` {
			t.Errorf("got %s %v", got.Output, got.Failure)
		}
	})
}

// TestFatalEndings runs this test binary again for endings that fail a test.
func TestFatalEndings(t *testing.T) {
	endings := map[string]struct {
		during func(*starling.Call) (any, error)
		want   string
	}{
		"never":   {func(*starling.Call) (any, error) { <-make(chan int); return nil, nil }, "the tool waits for something that never happens"},
		"panic":   {func(*starling.Call) (any, error) { panic("the tool is broken") }, "the tool is broken"},
		"handler": {func(*starling.Call) (any, error) { return starling.Get("http://h/") }, "the handler ends the test"},
	}
	if ending, again := endings[os.Getenv("STARLING_ENDING")]; again {
		during = ending.during
		starlingtest.Host{HTTP: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Fatal("the handler ends the test") })}.Call(t, "during", "{}")
		fmt.Println("THE TEST WENT ON")
		return
	}
	for name, ending := range endings {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFatalEndings$")
		cmd.Env = append(os.Environ(), "STARLING_ENDING="+name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), ending.want) || strings.Contains(string(out), "WENT ON") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
