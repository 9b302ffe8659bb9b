package inspect

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/starling-host/starling/host/logview"
)

// ErrSignIn is what Scope returns, or wraps, for a request without a credential
// that is valid. A browser is then asked for one.
var ErrSignIn = errors.New("inspect: sign in first")

// Config says what a server shows, and to whom.
type Config struct {
	// Scope returns what a request may see. It is asked for every request, so that
	// a credential that was withdrawn opens nothing more. The credential is in the
	// header Authorization: for a browser that has signed in, the server puts it
	// there, as "Bearer" and what was typed in. Without a valid one Scope returns
	// [ErrSignIn]. Required; see [Only].
	Scope func(*http.Request) (logview.View, error)

	// Prefix is the path that the server is mounted under, such as "/inspect",
	// without a slash at the end. The handler expects the whole path. Empty is the
	// root.
	Prefix string

	// Origins are those under which browsers reach the server, such as
	// "https://starling.example" or "http://127.0.0.1:8300". A request for another
	// host is refused, which is what keeps out a page whose name was bound to this
	// address. Empty accepts every host; then whoever mounts the server looks at it.
	Origins []string

	// Replays is how many validations and replays run at once; one more is told to
	// come back. A view with a namespace gets at most half of them. Zero is 2.
	Replays int

	// Tails is how many pages may follow runs at once, those of a view with a
	// namespace at most a quarter. Zero is 64.
	Tails int

	// Logger is told about failures. Nil discards.
	Logger *slog.Logger
}

// Server is the web view. Use [New].
type Server struct {
	config  Config
	origins []origin
	handler http.Handler
	seal    cipher.AEAD // of sessions; its key lives as long as the process
	work    *slots      // of validations and replays
	tails   *slots
}

// origin is a scheme and a host with its port.
type origin struct{ scheme, host string }

// New returns a server. It is an error if Scope is missing, or if the prefix or an
// origin is not one.
func New(c Config) (*Server, error) {
	if c.Scope == nil {
		return nil, errors.New("inspect: the scope is missing")
	}
	if c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || strings.HasSuffix(c.Prefix, "/") || strings.ContainsAny(c.Prefix, "{}%? ")) {
		return nil, fmt.Errorf("inspect: the prefix %q is no path that begins with a slash and ends without one", c.Prefix)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: c, seal: newSeal()}
	for _, text := range c.Origins {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" {
			return nil, fmt.Errorf("inspect: %q is no origin such as http://127.0.0.1:8300", text)
		}
		s.origins = append(s.origins, origin{u.Scheme, u.Host})
	}
	s.work, s.tails = newSlots(defaultTo(c.Replays, 2), 2), newSlots(defaultTo(c.Tails, 64), 4)
	s.handler = s.guard(s.mux())
	return s, nil
}

func defaultTo(n, standard int) int {
	if n <= 0 {
		return standard
	}
	return n
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// pattern puts the prefix into a pattern of the mux.
func (s *Server) pattern(p string) string {
	method, path, _ := strings.Cut(p, " ")
	return method + " " + s.config.Prefix + path
}

// path is the path of a page; parts are escaped.
func (s *Server) path(parts ...string) string {
	path := s.config.Prefix
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	if path == s.config.Prefix {
		path += "/"
	}
	return path
}
