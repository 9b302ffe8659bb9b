package inspect

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/web"
)

// The name of the cookie of a session without its port, and how long signing in lasts.
const (
	sessionCookie = "starling_inspect"
	sessionTime   = 12 * time.Hour
)

// Only returns a Scope that shows one view to requests with the token, and to all requests
// if the token is empty.
func Only(v eventview.View, token string) func(*http.Request) (eventview.View, error) {
	return func(r *http.Request) (eventview.View, error) {
		key, ok := web.Bearer(r)
		if token != "" && (!ok || subtle.ConstantTimeCompare([]byte(key), []byte(token)) != 1) {
			return eventview.View{}, ErrSignIn
		}
		return v, nil
	}
}

// sessionName returns the name of the cookie of a session. A browser sends its cookies to
// every port of a host: with one name for all, signing in to one view would sign out of
// another process's view.
func sessionName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return sessionCookie
	}
	return sessionCookie + "_" + port
}

// credited returns the request with the credential of its session, if it has one
// and no credential of its own.
func (s *Server) credited(r *http.Request) *http.Request {
	cookie, err := r.Cookie(sessionName(r))
	if err != nil || r.Header.Get("Authorization") != "" {
		return r
	}
	encrypted, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return r
	}
	session, err := s.sessions.Open(nil, nil, encrypted, []byte(sessionCookie))
	if err != nil || len(session) < 8 || time.Now().Unix() >= int64(binary.BigEndian.Uint64(session)) {
		return r
	}
	return withBearer(r, string(session[8:]))
}

func withBearer(r *http.Request, token string) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func (s *Server) setSession(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	// The connection is encrypted here, or at a proxy whose address is one of the origins.
	encrypted := r.TLS != nil || slices.ContainsFunc(s.origins, func(o url.URL) bool { return o.Scheme == "https" && strings.EqualFold(r.Host, o.Host) })
	http.SetCookie(w, &http.Cookie{
		Name: sessionName(r), Value: value, Path: s.path(), MaxAge: maxAge,
		HttpOnly: true, Secure: encrypted, SameSite: http.SameSiteStrictMode,
	})
}

// signInPage is the form.
type signInPage struct {
	To    string
	Wrong bool // the credential typed in is not valid
}

// askToSignIn answers with the form that leads back to where the browser was going.
func (s *Server) askToSignIn(w http.ResponseWriter, r *http.Request) error {
	to := s.path()
	if r.Method == http.MethodGet {
		to = r.URL.RequestURI()
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	return s.render(w, r, http.StatusUnauthorized, "signin", "Sign in", eventview.View{}, signInPage{To: to})
}

func (s *Server) signInForm(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	return s.render(w, r, http.StatusOK, "signin", "Sign in", v, signInPage{To: s.ours(r.URL.Query().Get("to"))})
}

// signIn makes a session of a credential that Scope accepts: its cookie has the time of its end and the
// credential, encrypted.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	token, to := strings.TrimSpace(r.PostFormValue("token")), s.ours(r.PostFormValue("to"))
	_, err := s.config.Scope(withBearer(r, token))
	switch {
	case token == "" || errors.Is(err, ErrSignIn):
		return s.render(w, r, http.StatusUnauthorized, "signin", "Sign in", v, signInPage{to, true})
	case err != nil:
		return err
	}
	session := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(sessionTime).Unix()))
	session = append(session, token...)
	s.setSession(w, r, base64.RawURLEncoding.EncodeToString(s.sessions.Seal(nil, nil, session, []byte(sessionCookie))), int(sessionTime.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

func (s *Server) signOut(w http.ResponseWriter, r *http.Request, _ eventview.View) error {
	s.setSession(w, r, "", -1)
	http.Redirect(w, r, s.path("sign-in"), http.StatusSeeOther)
	return nil
}

// ours returns a path of this server, and the first page's for anything else, such
// as the name of another server.
func (s *Server) ours(to string) string {
	if !strings.HasPrefix(to, s.config.Prefix+"/") || strings.HasPrefix(to, "//") || strings.ContainsFunc(to, func(r rune) bool { return r <= ' ' || r == '\\' }) {
		return s.path()
	}
	return to
}

// maxForm bounds a form, in bytes.
const maxForm = 16 << 10

// policy is the content security policy of every answer. Trusted types keep the
// script from writing markup even by mistake.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard refuses requests that a page of another origin makes a browser send, before any lookup.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", referrerPolicy(r))
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch status := s.origins.Refuses(r); status {
		case http.StatusMisdirectedRequest:
			s.refuse(w, r, eventview.View{}, status, "This server does not serve that host name.")
		case http.StatusForbidden:
			s.refuse(w, r, eventview.View{}, status, "The request comes from a page of another origin. Enter the address in the browser instead.")
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			next.ServeHTTP(w, r)
		}
	})
}

// referrerPolicy keeps addresses from other servers. Beyond TLS and this machine,
// a browser identifies a request of our own page by Origin alone, and without a
// referrer it would not.
func referrerPolicy(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if r.TLS != nil || host == "localhost" || net.ParseIP(host).IsLoopback() {
		return "no-referrer"
	}
	return "same-origin"
}
