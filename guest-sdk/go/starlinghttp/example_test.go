package starlinghttp_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/starling-host/starling/guest-sdk/go/starlinghttp"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

// In a tool, Go's own client asks the host, which records the exchange.
func ExampleClient() {
	during = func() {
		response, err := starlinghttp.Client().Get("https://api.example.com/rate")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		fmt.Println(response.StatusCode, string(body), err)
	}
	host := starlingtest.Host{HTTP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1.25") })}
	called := host.Call(new(testing.T), "during", `{}`)
	fmt.Println(called.Exchanges[0].Method, called.Exchanges[0].URL)
	// Output:
	// 200 1.25 <nil>
	// GET https://api.example.com/rate
}
