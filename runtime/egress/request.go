package egress

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/lazy"
)

const (
	// maxRequestHead bounds what ParseRequest reads as request line and headers,
	// in bytes.
	maxRequestHead = 64 << 10

	// maxEffectName bounds the name of an effect, in bytes.
	maxEffectName = 256

	crlf = "\r\n"
)

// Request is one HTTP request of a guest. [ParseRequest] parses one from text. Host code may also
// fill one in; [Client.Do] applies the same checks to it.
type Request struct {
	// Method is a token such as GET. It is sent unchanged, in its own case.
	Method string
	// URL is absolute: http or https, a host, and optionally path and query.
	URL string
	// Header holds the headers to send under their canonical names. Host,
	// Content-Length, Starling-Effect, Starling-Timeout and what manages a connection have no place
	// here and are refused.
	Header http.Header
	// Body is sent with its length. Nil and empty mean no body.
	Body []byte
	// Timeout is how long the guest waits for the response at most: the Starling-Timeout
	// header. Zero: as long as the host does.
	Timeout time.Duration
	// Effect names the exchange in the log: the Starling-Effect header, or the
	// method, a space and the URL, cut at 256 bytes.
	Effect string
}

// ParseRequest reads a message/http document with a request in absolute form.
// The package documentation describes what it accepts. The error is an
// [*Error] with StatusMalformed, or StatusTooLarge when request line and
// headers take more than 64 KiB. The request shares no memory with raw.
func ParseRequest(raw []byte) (*Request, error) {
	head, body, err := cutHead(raw)
	if err != nil {
		return nil, err
	}
	requestLine, fields, _ := strings.Cut(head, crlf)
	parts := strings.Split(requestLine, " ")
	if len(parts) != 3 || parts[2] != "HTTP/1.1" {
		return nil, malformed("the request line is %s: write METHOD URL HTTP/1.1, with one space between", quote(requestLine))
	}
	r := &Request{Method: parts[0], URL: parts[1]}
	if r.Header, err = parseFields(fields); err != nil {
		return nil, err
	}
	if r.Body, err = takeBody(r.Header, body); err != nil {
		return nil, err
	}
	for _, take := range []func() error{r.dropConnection, r.takeEffect, r.takeTimeout, r.takeHost} {
		if err := take(); err != nil {
			return nil, err
		}
	}
	if _, err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// Safe reports whether the method is safe (RFC 9110 section 9.2.1), so that
// repeating the request after a crash does no harm.
func (r *Request) Safe() bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// cutHead splits a document at the empty line that ends the head. The head
// keeps no line end after its last line.
func cutHead(raw []byte) (head string, body []byte, err error) {
	end := bytes.Index(raw[:min(len(raw), maxRequestHead)], []byte(crlf+crlf))
	if end >= 0 {
		return string(raw[:end]), raw[end+len(crlf+crlf):], nil
	}
	if len(raw) > maxRequestHead {
		return "", nil, failf(abi.StatusTooLarge, "request line and headers take more than %d bytes", maxRequestHead)
	}
	return "", nil, malformed(`no empty line ends the headers: each line ends with \r\n, and one more \r\n stands before the body`)
}

// parseFields reads header lines (RFC 9112 section 5) into canonical names.
func parseFields(fields string) (http.Header, error) {
	header := http.Header{}
	for fields != "" {
		var line string
		line, fields, _ = strings.Cut(fields, crlf)
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !abi.IsToken(name) {
			return nil, malformed("the header line %s is not NAME: VALUE, or continues the line before it", quote(line))
		}
		if !abi.IsFieldValue(value) {
			return nil, malformed(`the value of header %s holds a control character, or its line does not end with \r\n`, quote(name))
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		if len(header[key]) > 0 && slices.Contains(singular, key) {
			return nil, malformed("header %s is there twice", key)
		}
		header[key] = append(header[key], value)
	}
	return header, nil
}

// singular are the headers that may occur only once, because readers would disagree about which
// line counts.
var singular = []string{
	"Authorization", "Connection", "Content-Length", "Content-Type", "Host",
	abi.EffectHeader, abi.TimeoutHeader, idempotencyHeader, "Transfer-Encoding", "User-Agent",
}

// takeBody checks the body against the headers that frame it, and removes them.
func takeBody(header http.Header, body []byte) ([]byte, error) {
	coding, chunked := header["Transfer-Encoding"]
	length, sized := header["Content-Length"]
	delete(header, "Transfer-Encoding")
	delete(header, "Content-Length")
	switch {
	case chunked && sized:
		return nil, malformed("Content-Length and Transfer-Encoding contradict each other: send one of them")
	case chunked && !strings.EqualFold(coding[0], "chunked"):
		return nil, malformed("Transfer-Encoding %s is not supported: send chunked, or Content-Length", quote(coding[0]))
	case chunked:
		return decodeChunked(body)
	case sized:
		n, err := strconv.ParseUint(length[0], 10, 63)
		if err != nil || strconv.FormatUint(n, 10) != length[0] {
			return nil, malformed("Content-Length %s is not a number", quote(length[0]))
		}
		if n != uint64(len(body)) {
			return nil, malformed("Content-Length is %d, and %d bytes follow the headers", n, len(body))
		}
		return bytes.Clone(body), nil
	case len(body) > 0:
		return nil, malformed("%d bytes follow the headers, and no Content-Length announces them", len(body))
	}
	return nil, nil
}

// dropConnection removes the one connection header that clients write without
// meaning anything by it. Any other use is left for check to refuse.
func (r *Request) dropConnection() error {
	switch v := r.Header.Get("Connection"); strings.ToLower(v) {
	case "", "close", "keep-alive":
		delete(r.Header, "Connection")
		return nil
	default:
		return malformed("Connection may be close or keep-alive, not %s", quote(v))
	}
}

func (r *Request) takeEffect() error {
	name := r.Header.Get(abi.EffectHeader)
	if len(r.Header[abi.EffectHeader]) == 0 {
		name = r.Method + " " + r.URL
		if len(name) > maxEffectName {
			name = name[:maxEffectName-3] + "..."
		}
	}
	if name == "" || len(name) > maxEffectName || !utf8.ValidString(name) {
		return malformed("%s is not the name of an effect: write 1 to %d bytes of UTF-8", abi.EffectHeader, maxEffectName)
	}
	if event.ReservedEffect(name) {
		return malformed("%s is %s, a name that belongs to the runtime: use another", abi.EffectHeader, quote(name))
	}
	delete(r.Header, abi.EffectHeader)
	r.Effect = name
	return nil
}

func (r *Request) takeTimeout() error {
	if len(r.Header[abi.TimeoutHeader]) == 0 {
		return nil
	}
	text := r.Header.Get(abi.TimeoutHeader)
	ms, err := strconv.ParseUint(text, 10, 32)
	if err != nil || ms == 0 || strconv.FormatUint(ms, 10) != text {
		return malformed("%s is %s: write the milliseconds that the tool waits, from 1", abi.TimeoutHeader, quote(text))
	}
	delete(r.Header, abi.TimeoutHeader)
	r.Timeout = time.Duration(ms) * time.Millisecond
	return nil
}

// takeHost removes Host after comparing it with the target, which it may spell
// with or without the scheme's own port.
func (r *Request) takeHost() error {
	host, ok := r.Header["Host"]
	if !ok {
		return nil
	}
	delete(r.Header, "Host")
	t, err := parseTarget(r.URL)
	if err != nil {
		return malformed("%v", err)
	}
	h, err := parseAuthority(host[0])
	h.port = cmp.Or(h.port, defaultPort(t.scheme))
	if err != nil || h.host != t.host || h.port != t.port {
		return malformed("Host is %s, and the URL says %s: write the same, or leave Host out", quote(host[0]), quote(t.hostPort()))
	}
	return nil
}

// check checks that the request can be sent unchanged and returns its target.
func (r *Request) check() (target, error) {
	if !abi.IsToken(r.Method) {
		return target{}, malformed("the method %s is not a token", quote(r.Method))
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return target{}, malformed("the method %s is not supported", r.Method)
	}
	t, err := parseTarget(r.URL)
	if err != nil {
		return target{}, malformed("%v", err)
	}
	for name, values := range r.Header {
		switch {
		case !abi.IsToken(name), name != textproto.CanonicalMIMEHeaderKey(name):
			return target{}, malformed("%s is not the canonical name of a header", quote(name))
		case name == "Host", name == abi.EffectHeader, name == abi.TimeoutHeader, connectionHeader(name):
			return target{}, malformed("header %s belongs to the host: leave it out", name)
		case slices.ContainsFunc(values, func(v string) bool { return !abi.IsFieldValue(v) }):
			return target{}, malformed("the value of header %s holds a control character", name)
		}
	}
	return t, nil
}

// connectionHeader lists what RFC 9110 section 7.6.1 calls connection-specific,
// what speaks to a proxy, and Expect, which asks for a dialogue that one call
// cannot have.
func connectionHeader(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Expect", "Http2-Settings", "Keep-Alive",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// Servers, frameworks and proxies take method, path and host also from these headers, and the
// method of a POST from a field of such a name. They trim names, put _ for other characters, and
// look into brackets.
var (
	secondWay = lazy.Regexp(`^(?:forwarded|destination|path-info|script-name|request-ur[il]|ur[il]|path|x-accel-.*|x-(?:middleware-)?rewrite(?:-.*)?|` +
		`(?:x-)?(?:http-)?(?:method|verb|host|path|ur[il])-override|x-(?:(?:http|ms|tunnell?ed|tunnel)-)?(?:method|verb|host|path|ur[il]|script-name|scriptname)|` +
		`(?:x-)?(?:[a-z0-9]+-)*(?:original|forwarded|override|real|replaced|request|proxy|backend|envoy|rewrite|upstream|target|gateway|matched|invoke|base)-` +
		`(?:[a-z0-9]+-)*(?:method|verb|host|server|path|path-info|ur[il]|prefix|script-name|target))$`)

	// ordinary are the headers that cannot replace method, path or host: those of RFC 9110 and its
	// relatives for content, conditions, negotiation and tracing, and keys and versions of APIs.
	ordinary = lazy.Regexp(`^(?i:accept(?:-(?:charset|encoding|language|version))?|a-im|authorization|b3|baggage|cache-control|` +
		`content-(?:digest|disposition|encoding|language|md5|type)|cookie2?|date|dnt|early-data|if-(?:match|modified-since|none-match|range|unmodified-since)|` +
		`idempotency-key|last-event-id|max-forwards|origin|pragma|prefer|priority|range|referer|repr-digest|request-id|` +
		`save-data|sec-[a-z-]+|signature(?:-input)?|trace(?:parent|state)|user-agent|want-(?:content|repr)-digest|` +
		`mcp-(?:protocol-version|session-id)|(?:anthropic|notion|stripe|linear|openai)-(?:version|beta|organization|project)|` +
		`x-amz-(?:content-sha256|date|security-token|user-agent)|x-(?:amzn-trace-id|cloud-trace-context|datadog-[a-z-]+|b3-[a-z]+)|` +
		`x-forwarded-(?:for|proto)|x-(?:real-ip|requested-with|goog-user-project|idempotency-key)|` +
		`x-(?:correlation|request|trace|span|transaction|client-trace)-?id|` +
		`(?:x-)?(?:[a-z0-9]+-){0,2}(?:(?:api-?|auth-|subscription-)key|(?:api|csrf)token|token|version)|x-key)$`)
	methodField = lazy.Regexp(`(?i)(?:^[^a-z0-9]+|[^a-z0-9][_. ]+|(?:^|[^a-z0-9])x[^a-z0-9]*http[^a-z0-9]*)(?:http[^a-z0-9]*)?method(?:[^a-z0-9]|$)|method[^a-z0-9]*override`)

	// disposition finds the field of a part that has its name, partName that name however it is
	// written, and plainName the ways that all servers read alike.
	disposition = lazy.Regexp(`(?i)(?:^|[\r\n])content-disposition[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*`)
	partName    = lazy.Regexp(`(?i);[^a-z0-9"]*name[^a-z0-9_.]`)
	plainName   = lazy.Regexp(`(?i);[ \t]*name=(?:"([^"\\]*)"|([\w.\[\]-]+))[ \t]*(?:[;\r\n]|$)`)
)

// OrdinaryHeader reports whether a header is one that no server takes for another method, path or
// host than the request line has. Of other headers that is not known.
func OrdinaryHeader(name string) bool { return ordinary().MatchString(name) }

// oneWay refuses a request that asks a server for another method, path or host than its
// request line, which is what the authorizer sees.
func (r *Request) oneWay(t target) error {
	for _, name := range sortedNames(r.Header) {
		if secondWay().MatchString(headerKey(name)) {
			return Denied("header %s can ask the server for another method, path or host than the request line: write it there", name)
		}
	}
	if r.Method != http.MethodPost {
		return nil
	}
	_, query, _ := strings.Cut(t.uri, "?")
	var names []string
	for key := range r.pairs(query) {
		names = append(names, key)
	}
	var object map[string]json.RawMessage
	if bodyKind(r.Header.Get("Content-Type")) == jsonBody && json.Unmarshal(r.Body, &object) == nil {
		names = slices.AppendSeq(names, maps.Keys(object))
	}
	for _, field := range disposition().FindAllString(string(r.Body), -1) {
		plain := plainName().FindAllStringSubmatch(field, -1)
		if len(plain) != len(partName().FindAllString(field, -1)) || strings.Contains(field, "=?") {
			return Denied(`the name of a part of a multipart body could be read as _method: write name="NAME", on one line and without escapes`)
		}
		for _, m := range plain {
			names = append(names, unescape(m[1]+m[2]))
		}
	}
	if i := slices.IndexFunc(names, methodField().MatchString); i >= 0 {
		return Denied("the field %s can ask the server for another method than POST: send the request with that method", quote(names[i]))
	}
	return nil
}

// decodeChunked returns the content of a chunked body (RFC 9112 section 7.1)
// that is complete in memory. Extensions and trailers have no place to go in a
// request that is sent with its length, so they are refused.
func decodeChunked(body []byte) ([]byte, error) {
	var content []byte
	for {
		line, rest, ok := bytes.Cut(body, []byte(crlf))
		size, err := strconv.ParseUint(string(line), 16, 32)
		if !ok || err != nil || len(line) > 8 {
			return nil, malformed("the chunked body has no chunk size at %s", quote(string(line)))
		}
		if size == 0 {
			if string(rest) != crlf {
				return nil, malformed("the chunked body does not end with its last chunk: trailers are not supported")
			}
			return content, nil
		}
		if uint64(len(rest)) < size+uint64(len(crlf)) || string(rest[size:size+2]) != crlf {
			return nil, malformed("a chunk of the body is not %d bytes long", size)
		}
		content = append(content, rest[:size]...)
		body = rest[size+2:]
	}
}

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
	header := http.Header{}
	maps.Copy(header, r.Header)
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
	header := http.Header{}
	maps.Copy(header, received)
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
