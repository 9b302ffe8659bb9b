package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/tenant"
)

// TestCompilingAndReplayingAreBoundedForEachTenant: a tenant has one slot of two, others do
// not wait for more than that, one request too many is refused, and who gives up is not
// counted any more.
func TestCompilingAndReplayingAreBoundedForEachTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := guest.NewScheduler(2, 1)
		storm, good := tenant.Tenant{ID: "storm"}, tenant.Tenant{ID: "good"}
		leaveFirst, err := enter(t.Context(), slots, storm, 3)
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		second, third := make(chan error, 1), make(chan error, 1)
		go func() { _, err := enter(ctx, slots, storm, 3); second <- err }()
		synctest.Wait()
		go func() {
			leave, err := enter(t.Context(), slots, storm, 3)
			if err == nil {
				leave()
			}
			third <- err
		}()
		synctest.Wait()
		if len(second) != 0 || len(third) != 0 {
			t.Fatal("a tenant has several slots at once")
		}
		if _, err := enter(t.Context(), slots, storm, 3); problemOf(err).Status != http.StatusTooManyRequests {
			t.Errorf("a fourth request: %v", err)
		}
		leaveGood, err := enter(t.Context(), slots, good, 1)
		if err != nil {
			t.Fatal(err)
		}
		leaveGood()
		giveUp()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("who has given up: %v", err)
		}
		leaveFirst()
		if err := <-third; err != nil {
			t.Error(err)
		}
		for _, id := range []string{"storm", "good"} {
			if held, waiting := slots.Use(id); held+waiting != 0 {
				t.Errorf("%s holds %d slots and waits for %d", id, held, waiting)
			}
		}
	})
}

// TestUploadsAndBodiesAreChargedBeforeTheyAreRead: bodies of one tenant take the memory that
// they will cost before their first byte is read. One that finds none for long is refused,
// another tenant's is read at once, and what a request holds ends with it.
func TestUploadsAndBodiesAreChargedBeforeTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{host: share.Host{CPU: guest.NewScheduler(2), Memory: guest.NewPool(4 << 20)}}
		d.config.Connections.Request = time.Minute
		read := func(id string, size int) (got []byte, end func(), err error) {
			ctx, s := d.host.Begin(t.Context(), guest.Claim{Tenant: id})
			r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/modules?name=m", io.LimitReader(zeros{}, int64(size)))
			r.ContentLength = int64(size)
			r.Header.Set("Content-Type", wasmType)
			got, err = d.readBody(httptest.NewRecorder(), r, wasmType, 1<<20, share.Module)
			return got, s.End, err
		}
		first, forget, err := read("storm", 300<<10)
		if err != nil || len(first) != 300<<10 {
			t.Fatalf("%d bytes, %v", len(first), err)
		}
		if _, end, err := read("good", 300<<10); err != nil {
			t.Errorf("another tenant: %v", err)
		} else {
			end()
		}
		began := time.Now()
		got, end, err := read("storm", 300<<10)
		if problemOf(err).Status != http.StatusServiceUnavailable || time.Since(began) != 10*time.Second || got != nil {
			t.Errorf("a second body: %d bytes after %s, %v", len(got), time.Since(began), err)
		}
		end()
		if _, end, err = read("storm", 100); err != nil {
			t.Errorf("a small body: %v", err)
		}
		end()
		if _, end, err = read("storm", 2<<20); problemOf(err).Status != http.StatusRequestEntityTooLarge {
			t.Errorf("a body beyond its bound: %v", err)
		}
		end()
		time.AfterFunc(time.Second, forget)
		if _, end, err = read("storm", 300<<10); err != nil {
			t.Errorf("after the first one has ended: %v", err)
		}
		end()
		if held := d.host.Memory.Held("storm"); held != 0 {
			t.Errorf("%d bytes are held by nothing", held)
		}
	})
}

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{0}, len(p))), nil }
