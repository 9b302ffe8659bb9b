package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/runtime/egress"
)

func Example() {
	crm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		fmt.Fprintf(w, `{"path":%q}`, r.URL.Path)
	}))
	defer crm.Close()
	host := strings.TrimPrefix(crm.URL, "http://")

	rule, err := egress.ParseRule(host)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := egress.New(egress.Config{Authorize: egress.Rules{Allow: []egress.Rule{rule}, Private: true}})

	request, err := egress.ParseRequest([]byte(
		"GET http://" + host + "/customers/42 HTTP/1.1\r\n" +
			"Starling-Effect: customer/42\r\n" +
			"\r\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := client.Do(context.Background(), request, "")
	fmt.Println(request.Effect, request.Safe())
	fmt.Println(strings.ReplaceAll(string(response), "\r\n", "\n"), err)
	// Output:
	// customer/42 true
	// HTTP/1.1 200 OK
	// Content-Length: 24
	// Content-Type: text/plain; charset=utf-8
	//
	// {"path":"/customers/42"} <nil>
}

func ExampleError() {
	client := egress.New(egress.Config{}) // allows nothing
	_, err := client.Do(context.Background(), &egress.Request{Method: "GET", URL: "http://169.254.169.254/latest/meta-data/"}, "")

	var failure *egress.Error
	fmt.Println(errors.As(err, &failure) && failure.Status == abi.StatusDenied)
	fmt.Println(err)
	// Output:
	// true
	// egress: denied: http://169.254.169.254 is not an allowed destination
}

func ExampleParseRule() {
	for _, text := range []string{"API.example.com", ".example.com:8443", "https://example.com"} {
		fmt.Println(egress.ParseRule(text))
	}
	// Output:
	// api.example.com <nil>
	// .example.com:8443 <nil>
	//  egress: rule "https://example.com": write HOST or HOST:PORT, without scheme and path
}
