package bedrock

import (
	"io"
	"net/http"
	"net/url"
	"time"
)

// ReadFrame returns the headers that are strings, and the payload, of the next frame.
func ReadFrame(r io.Reader) (map[string]string, []byte, error) { return (&frameReader{r}).read() }

// Sign signs a request with a key.
func Sign(keyID, secret, token, region, service, method string, u *url.URL, h http.Header, body []byte, at time.Time) {
	signer{keyID, secret, token, region, service}.sign(method, u, h, body, at)
}
