package daemon

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/serve/tenant"
)

// uploader is the client of an upload, and the answer that is written to it.
type uploader struct {
	*httptest.ResponseRecorder
	body   *io.PipeWriter
	until  chan time.Time // the deadline for the body, once it is read
	got    []byte
	forget func()
	err    error
}

// SetReadDeadline is for [http.ResponseController].
func (s *uploader) SetReadDeadline(until time.Time) error {
	s.until <- until
	return nil
}

// sends begins an upload, of which nothing was sent yet.
func (d *Daemon) sends(who string) *uploader {
	body, out := io.Pipe()
	s := &uploader{ResponseRecorder: httptest.NewRecorder(), body: out, until: make(chan time.Time, 1)}
	r := httptest.NewRequest("POST", "/api/v1/modules?name=m", body)
	r.Header.Set("Content-Type", wasmType)
	go func() {
		s.got, s.forget, s.err = d.readModule(s, &request{Request: r, tenant: Account{Tenant: tenant.Tenant{ID: who}}})
		body.CloseWithError(http.ErrBodyReadAfterClose)
	}()
	synctest.Wait()
	return s
}

// write sends some of the body, if anybody reads it.
func (s *uploader) write(text string) {
	go io.WriteString(s.body, text)
	synctest.Wait()
}

// reads reports whether the body is read, or was.
func (s *uploader) reads() bool { return len(s.until) > 0 }

// end ends the body.
func (s *uploader) end(err error) {
	s.body.CloseWithError(err)
	synctest.Wait()
}

// TestUploadsAreReadOneByOne: of each tenant one upload is in memory, from its first byte
// until it is forgotten, and who waits has all the time for its body that there is.
func TestUploadsAreReadOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{config: Config{MaxModule: 100, RequestTime: time.Minute}, compiles: newCompiling()}
		first, second, good := d.sends("storm"), d.sends("storm"), d.sends("good")
		first.write("all of it")
		first.end(nil)
		if string(first.got) != "all of it" || !good.reads() {
			t.Fatalf("who waits for nobody has sent %q, %v", first.got, first.err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if second.reads() {
			t.Error("a tenant has two modules in memory")
		}
		first.forget()
		synctest.Wait()
		if left := time.Until(<-second.until); left != time.Minute {
			t.Errorf("who has waited has %v for the body", left)
		}
		second.end(io.ErrUnexpectedEOF)
		if problemOf(second.err).Status != http.StatusBadRequest {
			t.Errorf("half a body: %v", second.err)
		}
		third := d.sends("storm")
		third.write(strings.Repeat("x", 101))
		fourth := d.sends("storm")
		if problemOf(third.err).Status != http.StatusRequestEntityTooLarge || !fourth.reads() {
			t.Errorf("a body that is refused is still waited for, %v", third.err)
		}
		good.end(nil)
		fourth.end(nil)
	})
}

// TestNobodyWaitsForSlowSenders: the next upload of the same tenant is read beside one
// that does not end, which is neither lost nor forgotten twice.
func TestNobodyWaitsForSlowSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{config: Config{MaxModule: 100, RequestTime: time.Minute}, compiles: newCompiling()}
		slow, next, last := d.sends("storm"), d.sends("storm"), d.sends("storm")
		began := time.Now()
		for time.Since(began) < slowUpload {
			slow.write("x")
			if next.reads() {
				t.Fatalf("a body is read beside another one after %v", time.Since(began))
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if !next.reads() || last.reads() {
			t.Fatal("the tenant waits for one that is slow")
		}
		next.write("quick")
		next.end(nil)
		slow.write("y")
		slow.end(nil)
		if string(next.got) != "quick" || !bytes.HasSuffix(slow.got, []byte("xy")) {
			t.Errorf("%q, %v and %q, %v were sent", next.got, next.err, slow.got, slow.err)
		}
		slow.forget()
		time.Sleep(slowUpload)
		synctest.Wait()
		if last.reads() {
			t.Error("who has left the lane has taken another one out of it")
		}
		next.forget()
		synctest.Wait()
		if !last.reads() {
			t.Error("the last one waits for nobody")
		}
		last.end(nil)
	})
}
