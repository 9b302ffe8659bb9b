package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/starling-host/starling/serve"
)

func TestReadyAsksTheHostAtTheAddress(t *testing.T) {
	status, answer := http.StatusServiceUnavailable, `{"status":"not-ready","checks":{"serving":"failed","log":"ok","disk":"low","keys":"failed"}}`
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/readyz" {
			t.Error(r.URL)
		}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer host.Close()
	at := serve.Address{Network: "tcp", Address: host.Listener.Addr().String()}
	file := &serve.File{Listen: at, TLS: serve.FileTLS{Cert: "cert.pem", Key: "key.pem"}}
	want := "the host at " + at.Address + " is not ready: 503 Service Unavailable: keys failed, serving failed"
	if err := file.Ready(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	answer = `{"status":"not-ready","checks":{"serving":"draining","log":"ok"}}`
	want = "the host at " + at.Address + " is not ready: 503 Service Unavailable: it drains, as an operator wishes"
	if err := file.Ready(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	listen := func() serve.Resolved {
		file.Isolation = "inline"
		all := file.Resolve(t.Context())
		return all[len(all)-1]
	}
	if at := listen(); at.What != "listen" || at.Err == nil { // something that is not ready has the address
		t.Errorf("%+v", at)
	}
	if status = http.StatusOK; file.Ready(t.Context()) != nil {
		t.Error("a host that is ready is not")
	}
	if at := listen(); at.Err != nil || at.From != file.Listen.String()+", where a host serves already" {
		t.Errorf("%+v", at)
	}
}
