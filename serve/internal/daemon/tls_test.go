package daemon_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// What is behind the daemon learns that a request came encrypted: the cookies of the
// web view are marked by it. Who forgets the s is told.
func TestTLS(t *testing.T) {
	model := httptest.NewTLSServer(nil) // for its certificate
	defer model.Close()
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.TLS = model.TLS
		c.Inspector = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil {
				w.WriteHeader(http.StatusTeapot)
			}
		})
	})
	address, _ := strings.CutPrefix(w.url, "http://")
	res, err := model.Client().Get("https://" + address + "/inspect/")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 1 {
		t.Errorf("%s, HTTP/%d", res.Status, res.ProtoMajor)
	}
	plain, err := http.Get("http://" + address + "/inspect/")
	if err != nil {
		t.Fatal(err)
	}
	plain.Body.Close()
	if plain.StatusCode != http.StatusBadRequest {
		t.Errorf("in the clear: %s", plain.Status)
	}
}
