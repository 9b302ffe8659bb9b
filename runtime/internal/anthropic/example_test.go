package anthropic_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/starling-host/starling/runtime/internal/anthropic"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

func Example() {
	// A server stands in for the API.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.ServeFile(w, r, "testdata/text.sse")
	}))
	defer server.Close()

	p, err := anthropic.New(converse.Config{APIKey: "key", BaseURL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	stream, err := p.Stream(ctx, &provider.Request{
		Model:    "claude-sonnet-4-5",
		Messages: []provider.Message{{Role: provider.RoleUser, Content: "Greet me."}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	for {
		chunk, err := stream.Next(ctx)
		if err == io.EOF {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		switch chunk.Kind {
		case provider.ChunkText:
			fmt.Print(chunk.Text)
		case provider.ChunkEnd:
			fmt.Println("\n" + chunk.StopReason)
		}
	}
	// Output:
	// Hello, Köln ☀!
	// end_turn
}
