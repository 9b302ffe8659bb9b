package web

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Origins are the origins under which browsers reach a server, such as https://starling.example
// or http://127.0.0.1:8300. Without any, every host name is accepted, and the program in front of
// the server checks it.
type Origins []url.URL

// ParseOrigins reads origins.
func ParseOrigins(texts []string) (o Origins, err error) {
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
			return nil, fmt.Errorf("%q is not an origin such as http://127.0.0.1:8300", text)
		}
		o = append(o, *u)
	}
	return o, nil
}

// OriginsOf returns the origins of a server that listens at an address: first the one to
// print, and on this machine localhost.
func OriginsOf(origin string, addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return []string{origin}
	}
	scheme, _, _ := strings.Cut(origin, ":")
	return []string{origin, fmt.Sprintf("%s://localhost:%d", scheme, tcp.Port)}
}

// Refuses returns the status with which to refuse a request that a page of another site makes a
// browser send, or 0. [http.StatusMisdirectedRequest] is for a host name that the
// server does not have: another site may have bound it to this address (DNS rebinding).
// [http.StatusForbidden] is for a page of another origin, by the criteria of
// [http.CrossOriginProtection], and also if it only reads: a page that embeds an answer must learn
// nothing. Programs other than browsers send only Host of the headers that are read here.
func (o Origins) Refuses(r *http.Request) (status int) {
	from, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	known, own := len(o) == 0, false
	if known {
		_, host, _ := strings.Cut(from, "://")
		own = strings.EqualFold(host, r.Host) // whether TLS ends here or in front of the server
	}
	for _, origin := range o {
		here := strings.EqualFold(r.Host, origin.Host)
		known, own = known || here, own || here && strings.EqualFold(from, origin.String())
	}
	switch {
	case !known:
		return http.StatusMisdirectedRequest
	case site != "" && site != "same-origin" && site != "none":
		return http.StatusForbidden
	case from == "", from == "null" && site == "same-origin": // a page without a referrer names no origin in its forms
		return 0
	case !own:
		return http.StatusForbidden
	}
	return 0
}
