package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// lateContext is past its deadline and has not noticed yet.
type lateContext struct {
	context.Context
	done chan struct{}
}

func (late lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }
func (late lateContext) Done() <-chan struct{}       { return late.done }

func (late lateContext) Err() error {
	select {
	case <-late.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A dialer has its own timer for the deadline of a call, and that may be the first to
// go off. The call has still ended by its deadline, not by a failure of the network.
func TestTheDeadlineIsThatOfTheCallWhoeverNoticesFirst(t *testing.T) {
	late := lateContext{context.Background(), make(chan struct{})}
	c := loopback(t, "127.0.0.1:80")
	c.dial = func(context.Context, *net.Dialer, netip.AddrPort) (net.Conn, error) {
		time.AfterFunc(10*time.Millisecond, func() { close(late.done) })
		return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	}
	if _, err := c.Do(late, get("http://127.0.0.1/"), ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call's deadline has passed, and the exchange ended with %v", err)
	}
}
