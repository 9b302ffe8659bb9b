package egress

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	// userAgent is sent when a guest names none.
	userAgent = "starling-host"

	// idempotencyHeader carries the key by which a server recognises a request
	// that is sent again (draft-ietf-httpapi-idempotency-key-header).
	idempotencyHeader = "Idempotency-Key"
)

// writeHead appends a start line, the headers sorted by name with one line per
// value, and the empty line.
func writeHead(b *bytes.Buffer, startLine string, header http.Header) {
	b.WriteString(startLine + crlf)
	for _, name := range sortedNames(header) {
		for _, value := range header[name] {
			b.WriteString(name + ": " + value + crlf)
		}
	}
	b.WriteString(crlf)
}

func sortedNames(header http.Header) []string { return slices.Sorted(maps.Keys(header)) }

// wire returns the request as the server receives it.
func (r *Request) wire(t target, idempotencyKey string) (head, message []byte) {
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	setDefault(header, "User-Agent", userAgent)
	if idempotencyKey != "" {
		setDefault(header, idempotencyHeader, idempotencyKey)
	}
	header["Host"] = []string{t.hostPort()}
	header["Connection"] = []string{"close"}
	// For these methods a server expects a length even if it is zero (RFC 9110 section 8.6).
	if len(r.Body) > 0 || slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, r.Method) {
		header["Content-Length"] = []string{strconv.Itoa(len(r.Body))}
	}
	var b bytes.Buffer
	writeHead(&b, r.Method+" "+t.uri+" HTTP/1.1", header)
	n := b.Len()
	b.Write(r.Body)
	return b.Bytes()[:n], b.Bytes()
}

// Text returns the request as [ParseRequest] reads it.
func (r *Request) Text() []byte {
	header := http.Header{}
	maps.Copy(header, r.Header)
	if len(r.Body) > 0 {
		header["Content-Length"] = []string{strconv.Itoa(len(r.Body))}
	}
	var b bytes.Buffer
	writeHead(&b, r.Method+" "+r.URL+" HTTP/1.1", header)
	b.Write(r.Body)
	return b.Bytes()
}

func setDefault(header http.Header, name, value string) {
	if _, ok := header[name]; !ok {
		header[name] = []string{value}
	}
}

// render returns the response as the guest receives it. Its reason phrase is
// the registered one: the server's has no meaning (RFC 9112 section 4).
func render(method string, res *http.Response, body []byte) []byte {
	header := endToEnd(res.Header)
	switch {
	case res.StatusCode == http.StatusNoContent:
		delete(header, "Content-Length")
	case method == http.MethodHead, res.StatusCode == http.StatusNotModified:
		// Content-Length, if any, is the length for a GET.
	default:
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	status := strconv.Itoa(res.StatusCode) + " " + http.StatusText(res.StatusCode)
	var b bytes.Buffer
	b.Grow(1<<10 + len(body))
	writeHead(&b, "HTTP/1.1 "+status, header)
	b.Write(body)
	return b.Bytes()
}

// endToEnd returns the headers without the connection's own, which RFC 9110
// section 7.6.1 lists together with the headers that Connection names.
func endToEnd(received http.Header) http.Header {
	header := received.Clone()
	for _, list := range received["Connection"] {
		for _, name := range splitList(list) {
			delete(header, http.CanonicalHeaderKey(name))
		}
	}
	maps.DeleteFunc(header, func(name string, _ []string) bool {
		return connectionHeader(name) && name != "Content-Length"
	})
	return header
}

// splitList splits the comma-separated list of a header.
func splitList(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}
