package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/abi"
)

// TestSlotsBoundConnections makes a client ask a server that does not answer,
// and another one that shares its only slot: the second request waits, and
// never connects.
func TestSlotsBoundConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	host := listener.Addr().String()
	config := Config{Authorize: Rules{rules(t, host), true}, Slots: NewSlots(1)}
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
	if config.Slots.taken != 0 || len(config.Slots.waiting) != 0 {
		t.Error("the slot was not given back")
	}
}

// TestSlotsCanBeChanged while connections are open and others wait: open ones stay, and
// waiting ones get the added slots in their order.
func TestSlotsCanBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, in := NewSlots(-1), make(chan int, 10)
		enter := func(n int) {
			go func() {
				if s.enter(t.Context()) == nil {
					in <- n
				}
			}()
			synctest.Wait()
		}
		expect := func(what string, want ...int) {
			t.Helper()
			synctest.Wait()
			for _, n := range want {
				if len(in) == 0 {
					t.Fatalf("%s: %d has no slot", what, n)
				}
				if got := <-in; got != n {
					t.Fatalf("%s: %d has a slot, want %d", what, got, n)
				}
			}
			if len(in) > 0 {
				t.Fatalf("%s: %d has a slot", what, <-in)
			}
		}
		enter(1)
		enter(2)
		expect("any number", 1, 2)
		s.Allow(1)
		for n := 3; n <= 6; n++ {
			enter(n)
		}
		s.leave()
		expect("one too many is open")
		s.leave()
		expect("none is open", 3)
		s.Allow(2)
		expect("one more", 4)
		s.Allow(-1)
		if first, second := <-in, <-in; first+second != 5+6 { // at once, so in either order
			t.Errorf("any number again: %d and %d have a slot, want 5 and 6", first, second)
		}
		for range 4 {
			s.leave()
		}
		if s.taken != 0 {
			t.Errorf("%d slots are left over", s.taken)
		}
	})
}

// TestEgressSlotFreedOnCancel also if that has come at the same moment.
func TestEgressSlotFreedOnCancel(t *testing.T) {
	s := NewSlots(1)
	for range 1000 {
		if err := s.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- s.enter(ctx) }()
		go cancel()
		s.leave()
		if <-waited == nil {
			s.leave()
		}
		if s.taken != 0 || len(s.waiting) != 0 {
			t.Fatalf("%d slots are taken, %d wait", s.taken, len(s.waiting))
		}
	}
}
