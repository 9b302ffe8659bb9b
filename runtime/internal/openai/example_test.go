package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"Four."}}]}`, "\n\n")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, "\n\n")
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	defer server.Close()

	p, err := openai.OpenAI.New(converse.Config{BaseURL: server.URL + "/v1", ID: "local"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	stream, err := p.Stream(ctx, &provider.Request{
		Model:    "small",
		Messages: []provider.Message{{Role: provider.RoleUser, Content: "What is 2+2?"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stream.Close()
	for {
		c, err := stream.Next(ctx)
		if err == io.EOF {
			break
		} else if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v: %s%s\n", c.Kind, c.Text, c.StopReason)
	}
	// Output:
	// text: Four.
	// end: stop
}
