package inspect

import (
	"net"
	"net/http"
	"strings"
)

// policy is the content security policy of every answer. Trusted types keep the
// script from writing markup even by mistake.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard refuses what a page of another origin can make a browser send, before
// anything is looked up. Programs that are not browsers send none of the headers
// that it looks at but Host.
func (s *Server) guard(next http.Handler) http.Handler {
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeHeaders(w, r)
		switch {
		case !s.knownHost(r):
			s.refuse(w, r, http.StatusMisdirectedRequest, "This server does not answer to that name.")
		case !s.sameOrigin(r):
			s.refuse(w, r, http.StatusForbidden, foreign)
		default:
			next.ServeHTTP(w, r)
		}
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeHeaders(w, r)
		s.refuse(w, r, http.StatusForbidden, foreign)
	}))
	for _, o := range s.config.Origins {
		_ = protection.AddTrustedOrigin(o) // New has looked at it
	}
	return protection.Handler(guarded)
}

// foreign is what the user of another page's link reads.
const foreign = "The request comes from a page of another origin. Type the address in, or copy it there."

func writeHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", referrerPolicy(r))
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// knownHost refuses a name that was bound to this address by somebody else.
func (s *Server) knownHost(r *http.Request) bool {
	for _, o := range s.origins {
		if strings.EqualFold(r.Host, o.host) {
			return true
		}
	}
	return len(s.origins) == 0
}

// sameOrigin reports whether a request comes from a page of this server, from the
// address bar, or from a program. Unlike [http.CrossOriginProtection] it asks that
// of reading requests as well: a picture of another page must learn nothing.
func (s *Server) sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" && site != "same-origin" && site != "none" {
		return false
	}
	from := r.Header.Get("Origin")
	if from == "" || from == "null" && site == "same-origin" {
		return true // a page without a referrer names no origin in its forms
	}
	for _, o := range s.origins {
		if strings.EqualFold(from, o.scheme+"://"+o.host) && strings.EqualFold(r.Host, o.host) {
			return true
		}
	}
	return len(s.origins) == 0 && strings.EqualFold(from, scheme(r)+"://"+r.Host)
}

// referrerPolicy keeps addresses from other servers. Beyond TLS and this machine a
// browser tells this server that a request is of its own page by Origin alone, and
// without a referrer it would not.
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

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}
