package worker

import (
	"context"
	"os"
	"sync"
	"time"
)

// message is a frame from the host.
type message struct {
	kind kind
	body []byte // valid until the next message
}

// inbox is where a worker reads the host's messages. The goroutine that runs
// the guest reads for itself, since taking a frame from another goroutine
// costs as much again as the way through the pipe. Only after the guest has
// computed for some time does a listener read, so that a cancellation is
// heard, and the worker ends with the host in any case.
type inbox struct {
	frames *frameReader
	heard  chan message // read by the listener

	mu        sync.Mutex  // guards what follows
	timer     *time.Timer // calls listen
	armed     bool        // it will
	computing bool        // the guest runs
	since     time.Time   // then it began to
	listening bool        // only the listener may read
	number    uint64      // of the call that may be cancelled
	cancel    context.CancelFunc
}

// listenAfter is how long a guest computes before the worker listens.
const listenAfter = time.Millisecond

func newInbox(in *os.File) *inbox {
	frames := newFrameReader(in, maxFromHost)
	frames.honest = true
	i := &inbox{frames: frames, heard: make(chan message), cancel: func() {}}
	i.timer = time.AfterFunc(time.Hour, i.listen)
	i.timer.Stop()
	return i
}

// next returns the host's next message.
func (i *inbox) next() (message, error) {
	i.mu.Lock()
	i.computing = false
	listening := i.listening
	i.mu.Unlock()
	if listening {
		m := <-i.heard
		i.mu.Lock()
		i.listening = false
		i.mu.Unlock()
		return m, nil
	}
	for {
		m, cancelled, err := i.read()
		if err != nil || !cancelled {
			return m, err
		}
	}
}

// compute means that the guest runs from now on, until next is called again. A
// running timer is left alone: setting and stopping one for each call costs more
// than a short call.
func (i *inbox) compute() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.computing, i.since = true, time.Now()
	i.arm(listenAfter)
}

// arm sets the timer unless it is set. The caller holds mu.
func (i *inbox) arm(d time.Duration) {
	if !i.armed {
		i.armed = true
		i.timer.Reset(d)
	}
}

// begin makes the context of a call. Messages about earlier calls are ignored.
func (i *inbox) begin(number uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	i.mu.Lock()
	defer i.mu.Unlock()
	i.number, i.cancel = number, cancel
	return ctx, cancel
}

// read reads a frame. A cancellation is carried out at once.
func (i *inbox) read() (m message, cancelled bool, err error) {
	if m.kind, m.body, err = i.frames.next(); err != nil || m.kind != kindCancel {
		return m, false, err
	}
	f := fields{b: m.body}
	number := f.uint()
	i.mu.Lock()
	defer i.mu.Unlock()
	if number == i.number {
		i.cancel()
	}
	return m, true, nil
}

// listen reads until there is something for the goroutine that runs the guest, if
// that has computed for long enough.
func (i *inbox) listen() {
	if !i.begins() {
		return
	}
	for {
		m, cancelled, err := i.read()
		if err != nil {
			os.Exit(0) // the host is gone
		}
		if !cancelled {
			i.heard <- m
			return
		}
	}
}

// begins reports whether a listener should begin now.
func (i *inbox) begins() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.armed = false
	if !i.computing || i.listening {
		return false
	}
	if rest := listenAfter - time.Since(i.since); rest > 0 {
		i.arm(rest)
		return false
	}
	i.listening = true
	return true
}
