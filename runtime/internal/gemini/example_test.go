package gemini_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/gemini"
	"github.com/starling-host/starling/runtime/provider"
)

// A response is read chunk by chunk. Here a server of our own stands in for
// Google's.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, event(`{"text":"Sunny:"}`)+event(`{"text":"21 degrees."}`)+finish)
	}))
	defer server.Close()

	ctx := context.Background()
	p, err := gemini.New(converse.Config{APIKey: "a-key", BaseURL: server.URL})
	if err != nil {
		panic(err)
	}
	stream, err := p.Stream(ctx, &provider.Request{
		Model:    "gemini-2.5-flash",
		Messages: []provider.Message{{Role: provider.RoleUser, Content: "How is the weather?"}},
	})
	if err != nil {
		panic(err)
	}
	defer stream.Close()
	for {
		chunk, err := stream.Next(ctx)
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%v: %s\n", chunk.Kind, chunk.Text+chunk.StopReason)
	}
	// Output:
	// text: Sunny:
	// text: 21 degrees.
	// end: STOP
}
