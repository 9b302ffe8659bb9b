package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
)

// TestSlotsBoundConnections has a client ask a server that does not answer, and
// another one that shares its only slot: that one waits, and never connects.
func TestSlotsBoundConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	host := listener.Addr().String()
	config := Config{Authorize: Rules{rules(t, host), true}, Slots: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	first, client := make(chan error, 1), New(config)
	go func() {
		_, err := client.Do(ctx, &Request{Method: "GET", URL: "http://" + host + "/"}, "")
		first <- err
	}()
	conn, err := listener.Accept() // the first one has its slot
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	config.Timeout = 20 * time.Millisecond
	second := New(config)
	second.dial = func(context.Context, *net.Dialer, netip.AddrPort) (net.Conn, error) {
		t.Error("the second one connects")
		return nil, errors.New("no")
	}
	_, err = second.Do(t.Context(), &Request{Method: "GET", URL: "http://" + host + "/"}, "")
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != abi.StatusTimeout {
		t.Errorf("the second one: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first one: %v", err)
	}
	if len(config.Slots) != 0 {
		t.Error("the slot was not given back")
	}
}
