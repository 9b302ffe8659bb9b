package converse

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/starling-host/starling/runtime/provider"
)

// CheckURL says why no API can be at text, which is what for the provider. It does not
// repeat it: there may be a password in it. That is refused as well: net/http would send
// it beside the key, and have the user in its errors, which are recorded.
func CheckURL(what, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		return errors.New(what + " is not an http or https URL")
	case u.User != nil:
		return errors.New(what + " has a user or a password in it")
	}
	return nil
}

// Client returns c, made [Stationary], through [provider.HashBodies], with bodies whose
// errors wrap [provider.ErrNetwork]. Nothing else tells a connection that broke from a
// body that makes no sense: many errors of reading have no type of their own, and the
// AWS SDK takes a few of them for the end. Nil means [http.DefaultClient].
func Client(c *http.Client) *http.Client {
	c = provider.HashBodies(Stationary(c))
	c.Transport = marking{c.Transport}
	return c
}

// Stationary returns c as a client that does not follow redirections unless it was told
// how to, with a CheckRedirect: they would take the prompt to another place, and the key
// as well, since net/http keeps back no header but Authorization and those of cookies.
// Nil means [http.DefaultClient].
func Stationary(c *http.Client) *http.Client {
	stays := *cmp.Or(c, http.DefaultClient)
	if stays.CheckRedirect == nil {
		stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &stays
}

type marking struct{ inner http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (m marking) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.inner.RoundTrip(req)
	if err == nil {
		resp.Body = markingBody{resp.Body}
	}
	return resp, err
}

type markingBody struct{ io.ReadCloser }

// Read implements [io.Reader].
func (b markingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", provider.ErrNetwork, err)
	}
	return n, err
}
