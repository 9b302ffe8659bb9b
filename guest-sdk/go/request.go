package starling

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// message returns r in message/http form. For instance
// Request{URL: "https://api.example.com/customers/42"} becomes, with each line
// ended by CR LF:
//
//	GET https://api.example.com/customers/42 HTTP/1.1
//	Host: api.example.com
//	(an empty line)
func (r *Request) message() ([]byte, error) {
	method := r.Method
	if method == "" {
		method = "GET"
	}
	if !isToken(method) {
		return nil, malformed("the method " + strconv.Quote(method) + " is not a token")
	}
	target, host, err := splitURL(r.URL)
	if err != nil {
		return nil, err
	}
	m := make([]byte, 0, 256+len(target)+len(r.Body))
	m = append(m, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\n"...)
	for _, field := range r.Header {
		if err := checkField(field[0], field[1]); err != nil {
			return nil, err
		}
		m = append(m, field[0]+": "+field[1]+"\r\n"...)
	}
	if len(r.Body) > 0 || method == "POST" || method == "PUT" || method == "PATCH" {
		m = append(m, "Content-Length: "+strconv.Itoa(len(r.Body))+"\r\n"...)
	}
	return append(append(m, "\r\n"...), r.Body...), nil
}

// splitURL returns the request target in absolute form, and the host with its
// port. It refuses URLs that readers could understand differently and leaves
// the rest to the host, whose policy reads the URL again.
func splitURL(url string) (target, host string, err error) {
	refuse := func(reason string) (string, string, error) {
		return "", "", malformed("URL " + strconv.Quote(url) + ": " + reason)
	}
	scheme, rest, found := strings.Cut(url, "://")
	if !found || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return refuse("it must begin with http:// or https://")
	}
	letters := utf8.ValidString(url)
	for i := range len(url) {
		if url[i] <= ' ' || url[i] == 0x7f || url[i] == '\\' || url[i] > '~' && !letters {
			return refuse("byte " + strconv.Itoa(i) + " must be percent-encoded")
		}
	}
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	for i := range len(host) {
		if host[i] > '~' {
			return refuse("its host must be in ASCII: write the name in punycode, as xn--..., which a client of package starlinghttp does for you")
		}
	}
	switch {
	case host == "":
		return refuse("it has no host")
	case strings.Contains(host, "@"):
		return refuse("it holds a user or a password")
	case !strings.HasPrefix(path, "/"):
		path = "/" + path
	}
	return strings.ToLower(scheme) + "://" + host + escape(path, func(c byte) bool { return c <= '~' }), host, nil
}

// PathEscape returns text as one segment of a URL's path: all but letters,
// digits and -._~ is percent-encoded, the slash included. The segments "." and
// ".." have no escaped form that every server reads as a name; a caller that
// passes on untrusted text refuses them.
func PathEscape(text string) string {
	return escape(text, func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("-._~", c) >= 0 })
}

// escape percent-encodes all bytes but those to keep.
func escape(text string, keep func(byte) bool) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		c := text[i]
		if keep(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

func checkField(name, value string) error {
	switch strings.ToLower(name) {
	case "host", "content-length", "transfer-encoding", "connection":
		return malformed("the header field " + name + " follows from the rest of the request")
	}
	if !isToken(name) {
		return malformed("the header name " + strconv.Quote(name) + " is not a token")
	}
	if !isFieldValue(value) {
		return malformed("the value of the header field " + name + " holds a control character, or space at its ends: " + strconv.Quote(value))
	}
	return nil
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2, as methods and the names of
// headers are.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s can be the value of a header (RFC 9110, section 5.5): no
// control characters but tabs, no white space at its ends.
func isFieldValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return s == strings.Trim(s, " \t")
}
