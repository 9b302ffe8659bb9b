package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
)

// unhurried is a search that nobody ends.
func unhurried() *search { return newSearch(context.Background(), nil) }

// A server can make the search take long: here, 2^38 comparisons.
func TestTheSearchEndsWithTheExchange(t *testing.T) {
	host := serve(t, func(c net.Conn) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n%s", strings.Repeat("a", 4<<20))
	})
	client := New(Config{Authorize: granting{value: strings.Repeat("a", 64<<10) + "b"}, Timeout: time.Second})
	_, err := client.Do(context.Background(), get("http://"+host), "")
	wantFailure(t, err, abi.StatusTimeout, "no complete response within 1s")

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if b, err := newScrubber(unhurried(), []Secret{{"K", []byte(canary)}}).clean(&search{ctx: ended}, make([]byte, 2<<20)); b != nil || err == nil {
		t.Errorf("what was not searched is handed on: %q, %v", b, err)
	}
}

// TestALongSearchTakesTurns has one at a time, and many; a short one needs none. Who does
// not get one gets no response.
func TestALongSearchTakesTurns(t *testing.T) {
	taken, open := 0, 0
	search := func(size int, refusal error) (string, error) {
		taken, open = 0, 0
		host := serve(t, func(c net.Conn) { fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n%s", strings.Repeat("%", size)) })
		turn := func(context.Context) (func(), error) {
			if taken++; refusal != nil {
				return nil, refusal
			}
			open++
			if open > 1 {
				t.Error("a second turn was taken before the first had ended")
			}
			return func() { open-- }, nil
		}
		got, err := New(Config{Authorize: granting{value: canary}, Turn: turn}).Do(context.Background(), get("http://"+host), "")
		if open != 0 {
			t.Errorf("%d turns have not ended", open)
		}
		return string(got), err
	}
	if _, err := search(10, nil); err != nil || taken != 0 {
		t.Errorf("a short response: %d turns, %v", taken, err)
	}
	if got, err := search(1<<20, nil); err != nil || taken < 3 || !strings.HasSuffix(got, "%%") {
		t.Errorf("a long response: %d turns, %v", taken, err)
	}
	refusal := errors.New("no turn")
	if got, err := search(1<<20, refusal); !errors.Is(err, refusal) || got != "" {
		t.Errorf("without a turn: %d bytes, %v", len(got), err)
	}
}
