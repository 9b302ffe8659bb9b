package logtest

import (
	"errors"
	"os"
	"sync"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/await"
)

// RawFile is the limit that a log in a file is held against: the same group commit,
// of the same envelopes, into a plain file that is synced and never read.
type RawFile struct {
	f     *os.File
	mu    sync.Mutex // guards buf, err and next
	buf   []byte
	err   error         // of the first write or sync that failed
	next  chan struct{} // closed when the content of buf is durable
	work  chan struct{}
	ended chan struct{}
}

// CreateRawFile creates the file, or makes it empty. The caller closes it.
func CreateRawFile(path string) (*RawFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	r := &RawFile{f: f, next: make(chan struct{}), work: make(chan struct{}, 1), ended: make(chan struct{})}
	go r.write()
	return r, nil
}

func (r *RawFile) write() {
	defer close(r.ended)
	var buf []byte
	for range r.work {
		r.mu.Lock()
		buf, r.buf = r.buf, buf[:0]
		done := r.next
		r.next = make(chan struct{})
		r.mu.Unlock()
		_, err := r.f.Write(buf)
		if err == nil {
			err = SyncData(r.f)
		}
		r.mu.Lock()
		r.err = errors.Join(r.err, err)
		r.mu.Unlock()
		close(done)
	}
}

// Append writes an event. The channel is closed when it is durable, if nothing
// failed, which Close says.
func (r *RawFile) Append(e event.Event) <-chan struct{} {
	r.mu.Lock()
	r.buf = event.AppendEnvelope(r.buf, e)
	done := r.next
	r.mu.Unlock()
	await.Offer(r.work, struct{}{})
	return done
}

// Close ends the writer and returns the first error that it met. No append may
// follow.
func (r *RawFile) Close() error {
	close(r.work)
	<-r.ended
	return errors.Join(r.err, r.f.Close())
}
