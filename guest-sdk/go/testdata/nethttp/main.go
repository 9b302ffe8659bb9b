// Uses an ordinary http.Client, with a redirect and a timeout, after a while.
package main

import (
	"io"
	"net/http"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlinghttp"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

func init() { starling.Register(typed.Tool("get", "Gets a URL.", get)) }

func main() {}

type input struct {
	URL    string
	WaitMs int `json:",omitempty"`
}

func get(_ *starling.Call, in input) (string, error) {
	time.Sleep(time.Duration(in.WaitMs) * time.Millisecond)
	client := http.Client{Transport: starlinghttp.Transport{}, Timeout: 5 * time.Second}
	resp, err := client.Get(in.URL)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.Request.URL.String() + " " + string(body), err
}
