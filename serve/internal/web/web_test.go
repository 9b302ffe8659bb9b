package web

import (
	"context"
	"net"
	"net/http"
	"testing"
)

// TestServeEndsBesideASilentClient ends a server to which a client has connected without a request,
// as browsers do for the next one.
func TestServeEndsBesideASilentClient(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, &http.Server{Handler: http.NotFoundHandler()}, l) }()
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	response, err := http.Get("http://" + l.Addr().String()) // accepted after the silent one
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
