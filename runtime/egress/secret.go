package egress

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/lazy"
)

// The places of a request where the placeholder of a secret may stand.
const (
	PlaceHeader = "header" // in the value of a header
	PlaceQuery  = "query"  // in the value of a parameter of the query
	PlaceBody   = "body"
)

// MinSecretBytes is the minimum length of a secret. A shorter one could not be distinguished from
// the rest of a response, and is not sent.
const MinSecretBytes = 8

// Placeholder is the placeholder of a secret in a request, such as {{secret:API_KEY}}.
type Placeholder struct {
	Name  string // of the secret
	Place string // PlaceHeader, PlaceQuery or PlaceBody
	Field string // the canonical name of the header or the name of the parameter; empty for the body
}

// Secret is a value that a guest may send and never see.
type Secret struct {
	Name  string
	Value []byte
}

// placeholder returns how the secret is written in a request and a response.
func (s Secret) placeholder() string { return "{{secret:" + s.Name + "}}" }

var (
	likePlaceholder = lazy.Regexp(`(?i)\{\{\s*secret\s*:`)
	placeholder     = lazy.Regexp(`\{\{secret:([A-Z][A-Z0-9_]{0,63})\}\}`)
)

// IsSecretName reports whether name is a valid name of a secret: a letter of A-Z,
// and up to 63 more letters, digits and _.
func IsSecretName(s string) bool {
	parts := placeholder().FindStringSubmatch("{{secret:" + s + "}}")
	return parts != nil && parts[1] == s
}

// namesIn returns the secrets whose placeholders appear in text. A malformed placeholder is an
// error, because it would be sent unchanged.
func namesIn(text string) ([]string, error) {
	var names []string
	for _, m := range placeholder().FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	if len(likePlaceholder().FindAllString(text, -1)) != len(names) {
		return nil, Denied("a placeholder of a secret is written {{secret:NAME}}, with a name of A-Z, digits and _")
	}
	return names, nil
}

// finder collects placeholders; the first error stays.
type finder struct {
	found []Placeholder
	known map[Placeholder]bool // the placeholders in found
	err   error
}

func (f *finder) look(text, place, field string) {
	names, err := namesIn(text)
	f.err = cmp.Or(f.err, err)
	for _, name := range names {
		if p := (Placeholder{name, place, field}); !f.known[p] {
			f.known[p] = true
			f.found = append(f.found, p)
		}
	}
}

// refuse makes a placeholder in text an error.
func (f *finder) refuse(text, where string) {
	if f.err == nil && likePlaceholder().MatchString(text) {
		f.err = Denied("the placeholder of a secret may stand in the value of a header or a query parameter, or in the body, not in %s", where)
	}
}

// fields looks through the parameters of a query or a form.
func (f *finder) fields(query, place string, field func(key string) string) {
	for _, pair := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		f.refuse(unescape(key), "the name of a parameter")
		f.look(unescape(value), place, field(unescape(key)))
	}
}

// unescape decodes the name or the value of a parameter. Invalid encodings
// stay, because they would be sent like that.
func unescape(s string) string {
	if decoded, err := url.QueryUnescape(s); err == nil {
		return decoded
	}
	return s
}

// placeholders returns the placeholders of a request, in the order of places,
// headers and text.
func (r *Request) placeholders(t target) ([]Placeholder, error) {
	f := finder{known: map[Placeholder]bool{}}
	path, query, _ := strings.Cut(t.uri, "?")
	if decoded, err := url.PathUnescape(path); err == nil {
		path = decoded
	}
	f.refuse(path, "the path")
	f.refuse(r.Method, "the method")
	for _, name := range sortedNames(r.Header) {
		for _, value := range r.Header[name] {
			f.look(value, PlaceHeader, name)
		}
	}
	f.fields(query, PlaceQuery, func(key string) string { return key })
	if bodyKind(r.Header.Get("Content-Type")) == formBody {
		f.fields(string(r.Body), PlaceBody, func(string) string { return "" })
	} else {
		f.look(string(r.Body), PlaceBody, "")
	}
	return f.found, f.err
}

// The kinds of bodies, and of parts of one, in which a secret is written in different ways.
const (
	rawBody = iota
	jsonBody
	jsonLinesBody
	formBody
	multipartBody
)

func bodyKind(contentType string) int {
	kind := strings.ToLower(contentType)
	if end := strings.IndexAny(kind, ";, \t"); end >= 0 { // servers ignore the rest
		kind = kind[:end]
	}
	switch {
	case kind == "application/x-www-form-urlencoded":
		return formBody
	case kind == "application/json", kind == "text/json", strings.HasSuffix(kind, "+json"):
		return jsonBody
	case jsonLines().MatchString(kind):
		return jsonLinesBody
	case strings.HasPrefix(kind, "multipart/"):
		return multipartBody
	}
	return rawBody
}

// filler puts secrets where their placeholders stand. The first error stays.
type filler struct {
	secrets map[string][]byte
	filled  int // placeholders
	err     error
}

// replace returns text with its placeholders replaced by the secrets, encoded by encode.
// Replacements are not searched again.
func (f *filler) replace(text string, encode func(value []byte) (string, bool), where string) string {
	if f.err != nil || !placeholder().MatchString(text) {
		return text
	}
	f.exact(text, where)
	return placeholder().ReplaceAllStringFunc(text, func(p string) string {
		name := placeholder().FindStringSubmatch(p)[1]
		value, ok := f.secrets[name]
		encoded := ""
		switch {
		case !ok:
			f.fail("the secret %s may not be sent", name)
		case len(value) < MinSecretBytes:
			f.fail("the secret %s has fewer than %d bytes, and could not be kept out of the response", name, MinSecretBytes)
		case bytes.ContainsFunc(value, func(r rune) bool { return r > '~' }):
			f.fail("the secret %s has characters that are not ASCII, which servers read in different ways", name)
		default:
			if encoded, ok = encode(value); !ok || encoded == string(value) && opensEscape().Match(value) && !strings.HasSuffix(text, p) {
				f.fail("the secret %s has characters that cannot be sent in %s", name, where)
			}
		}
		return encoded
	})
}

func (f *filler) fail(format string, args ...any) {
	if f.err == nil {
		f.err = Denied(format, args...)
	}
}

// fields replaces in the values of the parameters of a query or a form. Values
// without a placeholder stay as written.
func (f *filler) fields(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if decoded := unescape(value); placeholder().MatchString(decoded) {
			pairs[i] = key + "=" + escapeQuery(f.replace(decoded, plain, "a query"))
		}
	}
	return strings.Join(pairs, "&")
}

// escapeQuery percent-encodes everything but the unreserved characters of RFC
// 3986, the space included.
func escapeQuery(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func plain(value []byte) (string, bool) { return string(value), true }

// word is a value that no server splits, however it reads the surrounding text.
func word(value []byte) (string, bool) {
	return string(value), !bytes.ContainsAny(value, " \t\r\n,;:|#<>&\"'`\\()[]{}")
}

func headerValue(value []byte) (string, bool) {
	return string(value), abi.IsFieldValue(string(value))
}

// jsonString returns a value in the form that it has between the quotes of a JSON string.
func jsonString(value []byte) (string, bool) {
	if !utf8.Valid(value) {
		return "", false
	}
	quoted := canon.AppendString(nil, string(value))
	return string(quoted[1 : len(quoted)-1]), true
}

// fill returns the request and the target with the secrets in place of their
// placeholders. The request itself keeps them.
func (r *Request) fill(t target, secrets []Secret) (*Request, target, error) {
	f := &filler{secrets: map[string][]byte{}}
	placeholders, err := r.placeholders(t)
	if err != nil {
		return nil, t, err
	}
	path, query, _ := strings.Cut(t.uri, "?")
	f.message(r, query, placeholders)
	for _, s := range secrets {
		f.secrets[s.Name] = s.Value
	}
	filled := &Request{Method: r.Method, URL: r.URL, Header: r.Header.Clone(), Body: r.Body}
	for _, name := range sortedNames(filled.Header) {
		encode, where := headerValue, "a header"
		if name == "Cookie" {
			encode, where = word, "a cookie"
		}
		for i, value := range filled.Header[name] {
			filled.Header[name][i] = f.replace(value, encode, where)
		}
	}
	if query != "" {
		t.uri = path + "?" + f.fields(query)
	}
	filled.Body = []byte(f.body(string(r.Body), r.Header.Get("Content-Type"), word))
	return filled, t, f.err
}

// body replaces placeholders in a body, or in a part of one, by its content type. If the
// type has no other encoding, raw encodes the secret.
func (f *filler) body(text, contentType string, raw func([]byte) (string, bool)) string {
	noJSON := func(line string) bool { return strings.TrimSpace(line) != "" && !json.Valid([]byte(line)) }
	switch kind := bodyKind(contentType); {
	case kind == formBody:
		return f.fields(text)
	case !placeholder().MatchString(text):
		return text
	case kind == multipartBody:
		return f.parts(text, contentType)
	case kind == jsonBody && !json.Valid([]byte(text)), kind == jsonLinesBody && slices.ContainsFunc(strings.Split(text, "\n"), noJSON):
		f.fail("a body with a secret is sent as JSON and is none")
	case kind == jsonBody, kind == jsonLinesBody:
		return f.replace(text, jsonString, "JSON")
	}
	return f.replace(text, raw, "a body")
}

// plainly changes a request so that its response can be searched: without compression, and not for
// a part of something larger, since a guest could combine parts none of which has the whole secret.
func (r *Request) plainly() error {
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for name := range r.Header {
		switch headerKey(name) {
		case "range", "if-range", "a-im", "request-range", "x-range", "x-ms-range":
			return Denied("header %s asks for a part of a response, which could not be searched for secrets", name)
		case "accept-encoding", "accept-charset":
			delete(r.Header, name)
		}
	}
	r.Header["Accept-Encoding"] = []string{"identity"}
	return nil
}

// A guest writes the text around a secret and the headers that tell a server how to read it. If a
// server could read them differently, its echo could have the secret in a form that the search
// misses. So text with a placeholder must read the same to every server, or the request is refused.

// escapeBefore is the beginning of an escape, or an escape of a character outside ASCII. A
// server that reads JSON makes one character from "\u00" and a secret, and a server that reads
// GBK from "%81" and a secret. The forms after a backslash are endless, as \U0001f6, \N{U+41,
// \c, or \000041 in CSS, so it is anything up to a space or the end of a string.
const escapeBefore = `%(?:25)*(?:u[0-9a-f]{0,4}|[89a-f][0-9a-f]|[0-9a-f]?)|` +
	`\\[^\s"]{0,16}|&(?:#[0-9]*|#x[0-9a-f]*|[a-z][a-z0-9]*)?;?`

var (
	// besideSecret finds, directly before or after a placeholder, text that could swallow or change a
	// character of the secret, or join with it into a number or base64. opensEscape finds a secret that
	// could do so with the text after it.
	besideSecret = lazy.Regexp(`(?i)(?:[a-z0-9]|[^\x00-\x7f]|` + escapeBefore + `)\{\{secret:|\{\{secret:[a-z0-9_]*\}\}` +
		`(?:[a-z0-9]|[^\x00-\x7f]|%(?:25)*(?:u|[89a-f][0-9a-f])|\\+(?:[^"\\]|$)|&(?:#|[a-z][a-z0-9]*;))`)
	opensEscape = lazy.Regexp(`(?i)(?:` + escapeBefore + `)$`)

	// references are the references to characters that every escaping uses.
	references = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&apos;", "'", "&amp;", "&")

	// simpleEscapes are the escapes in a JSON string that every reader of JSON undoes.
	simpleEscapes = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\/`, "/", `\b`, " ", `\f`, " ", `\n`, "\n", `\r`, "\r", `\t`, "\t")

	// coding finds the encoding that a content type, a part of a body, a document, a field of a
	// form, or an encoded word (RFC 2047) declares, and extended the one in a parameter of a
	// header (RFC 8187). asItIs are the codings that change nothing in ASCII.
	coding   = lazy.Regexp(`(?i)(?:charset[*0-9]*|encoding)["'\\]*[^!-~]*[=:][^!-~]*["'\\]*([^"'&;,>?)}\]\\\s]*)|[@_]charset|=\?[^?]*\?\s*[bq]\s*\?`)
	extended = lazy.Regexp(`(?i)[a-z0-9]\*[0-9]*\*?=([^\s'"]*)'`)
	asItIs   = lazy.Regexp(`(?i)^(?:utf-?8|(?:us-)?ascii|[78]bit|binary)$`)

	// lengthBefore finds a length directly before a placeholder, as bencode, netstrings and PHP
	// write it: a server would read a part of the secret, which is not found. It also finds what
	// could join digits to a number.
	lengthBefore = lazy.Regexp(`(?:[0-9]:["']?|[._])\{\{secret:`)

	// basic finds the scheme of credentials that a server decodes as base64: from another place
	// in them a secret is other bytes. basicAlone is one placeholder in it.
	basic      = lazy.Regexp(`(?i)\bbasic\b`)
	basicAlone = lazy.Regexp(`(?i)^basic +\{\{secret:[a-z0-9_]*\}\}$`)
)

// The one way to write a content type and the head of a part beside a secret. Comments, escapes,
// folded lines and extended parameters are left out, because servers differ in reading them.
const (
	plainParams = `(?:[ \t]*;[ \t]*[\w-]+=(?:[\w.+'/:#~-]+|"[ !#-\[\]-~]*"))*(?:[ \t]*;)?`
	textType    = `text/[\w.+-]+|application/(?:json|xml|graphql|x-www-form-urlencoded|` + jsonLinesType + `)|[\w.-]+/[\w.-]+\+(?:json|xml)`
	partType    = `(?:\r\nContent-Type: ([\w.+-]+/[\w.+-]+` + plainParams + `))?`

	jsonLinesType = `(?:x-)?(?:ndjson|jsonl|jsonlines)`
)

var (
	plainType = lazy.Regexp(`^[\w.+-]+/[\w.+-]+` + plainParams + `$`)
	textBody  = lazy.Regexp(`(?i)^(?:` + textType + `|multipart/form-data)(?:[ \t]*;|$)`)
	jsonLines = lazy.Regexp(`^application/` + jsonLinesType + `$`)
	textPlain = lazy.Regexp(`(?i)^text/plain(?:[ \t]*;|$)`)
	nested    = lazy.Regexp(`(?i)^(?:multipart|message)/`) // types with parts
	numbers   = lazy.Regexp(`(?i)yaml|toml`)               // whose bare words may be numbers, which come back in another form
	boundary  = lazy.Regexp(`(?i)boundary=(?:"([^"]{0,69}[^" ])"|([^ \t;"]{1,70}))`)

	// partHead is the head of a part: its type, its names, the name of its file, and the type again.
	partHead = lazy.Regexp(`(?i)^` + partType +
		`\r\nContent-Disposition: form-data((?:; name="[^\x00-\x1f"\\\x7f-\x{9f}]*"|(; filename(?:="[^\x00-\x1f"\\\x7f-\x{9f}]*"|\*=utf-8''[\w%.~!-]*)))+)` + partType + `$`)
	codingField = lazy.Regexp(`(?i); name="[^"]*(?:charset|encoding)`)

	// memberName finds a placeholder in the name of a member of an object of JSON, which servers
	// write in another form when they rename members.
	memberName = lazy.Regexp(`\{\{secret:[A-Z0-9_]*\}\}(?:[^"\\]|\\.)*"\s*:`)
)

// maxPlaceholders bounds the work on one request.
const maxPlaceholders = 1000

// exact refuses a text with placeholders that a server could read in another way.
func (f *filler) exact(text, where string) {
	f.coding(text, coding())
	if !isText(text) {
		f.fail("%s with a secret must be UTF-8 without control characters", where)
	}
	switch {
	case where == "JSON":
		if memberName().MatchString(text) {
			f.fail("the placeholder of a secret may stand in a value of JSON, not in the name of a member")
		}
		text = simpleEscapes.Replace(text)
	case where == "a body" && lengthBefore().MatchString(text):
		f.fail("the placeholder of a secret may not stand behind a number and a colon, which could be its length, nor behind a dot or _, which could make it a part of a number")
	case where == "a header" || where == "a cookie":
		f.coding(text, extended())
	}
	if where == "a header" && basic().MatchString(text) && !basicAlone().MatchString(text) {
		f.fail("the placeholder of a secret stands alone behind Basic, because what is beside it in base64 would change how it is decoded")
	}
	found := placeholder().FindAllStringIndex(text, -1)
	if f.filled += len(found); f.filled > maxPlaceholders {
		f.fail("a request has more than %d placeholders of secrets", maxPlaceholders)
		return
	}
	for _, at := range found {
		beside := text[max(0, at[0]-64):min(len(text), at[1]+64)] // no server takes a longer escape
		if f.err == nil && besideSecret().MatchString(references.Replace(beside)) {
			f.fail("the placeholder of a secret may not stand beside a letter, a digit or a character that is not ASCII, nor where %%, & or a backslash could make an escape of its characters")
		}
	}
}

// isText reports whether text is UTF-8 without what switches to other characters or marks
// them, in any of the codings that a server may try out.
func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\r' && r != '\n' || r == '\ufeff'
	})
}

// coding refuses a text that names another coding than UTF-8.
func (f *filler) coding(text string, finds *regexp.Regexp) {
	if lower := strings.ToLower(text); !strings.Contains(text, "=?") && !strings.Contains(text, "*") && !strings.Contains(lower, "charset") && !strings.Contains(lower, "encoding") {
		return // sooner than the expression finds out
	}
	for _, m := range finds.FindAllStringSubmatch(text, -1) {
		if !asItIs().MatchString(m[1]) {
			f.fail("a request with a secret is sent as it is in UTF-8, not in %s", quote(cmp.Or(m[1], m[0])))
		}
	}
}

// message refuses a request with secrets whose headers or fields make its server read it
// differently. A header is read by itself, so secrets in headers do not matter here.
func (f *filler) message(r *Request, query string, secrets []Placeholder) {
	in := func(place string) bool {
		return slices.ContainsFunc(secrets, func(p Placeholder) bool { return p.Place == place })
	}
	if !in(PlaceQuery) && !in(PlaceBody) {
		return
	}
	for key, value := range r.pairs(query) {
		f.coding(key+"="+value, coding())
	}
	kind := strings.Join(r.Header["Content-Type"], "\n")
	if f.coding(kind, coding()); kind != "" && !plainType().MatchString(kind) {
		f.fail("the Content-Type of a request with a secret is TYPE/SUBTYPE; NAME=VALUE, without comments, escapes and *")
	}
	for name := range r.Header {
		switch plain := headerKey(name); {
		case plain == "accept-encoding", plain == "accept-charset", name == "Content-Type":
		case in(PlaceBody) && strings.HasSuffix(plain, "encoding"):
			f.fail("a body with a secret is sent as it is: leave out header %s", name)
		case strings.TrimPrefix(strings.TrimPrefix(plain, "x-"), "http-") == "content-type", strings.Contains(plain, "charset"):
			f.fail("a request with a secret has its type and charset in Content-Type alone: leave out header %s", name)
		}
	}
	if !in(PlaceBody) {
		return
	}
	if !textBody().MatchString(kind) || numbers().MatchString(kind) {
		f.fail("a body with a secret needs the Content-Type of a text, such as application/json, multipart/form-data or text/plain: in any other, send the secret in a header")
	}
	if len(r.Body) > DefaultMaxRequestBytes {
		f.fail("a body with a secret has at most %d bytes", DefaultMaxRequestBytes)
	}
	if bodyKind(kind) != multipartBody && !isText(string(r.Body)) {
		f.fail("a body with a secret must be UTF-8 without control characters")
	}
}

// parts replaces placeholders in the parts of a multipart body, and refuses a body that servers could
// split or read in different ways. Other parts cannot change how a part with a secret is read, except
// by the name of a charset, or by bytes from which a server that looks at all fields would guess one.
func (f *filler) parts(body, contentType string) string {
	delimiter := "--"
	if m := boundary().FindStringSubmatch(contentType); m != nil && strings.Count(strings.ToLower(contentType), "boundary") == 1 {
		delimiter += m[1] + m[2]
	}
	pieces := strings.Split(crlf+body, crlf+delimiter)
	last := len(pieces) - 1
	delimiters := func(s string) int { return strings.Count(strings.ToLower(s), strings.ToLower(delimiter)) }
	exact := len(delimiter) > 2 && last > 0 && delimiters(body) == last && pieces[0] == "" && strings.TrimSuffix(pieces[last], crlf) == "--"
	for i := 1; exact && i < last; i++ {
		head, content, whole := strings.Cut(pieces[i], crlf+crlf)
		m := partHead().FindStringSubmatch(head)
		if exact = whole && m != nil && isText(head) && !likePlaceholder().MatchString(head) && (m[1] == "" || m[4] == ""); !exact {
			break
		}
		contentType, fields := m[1]+m[4], m[2]
		f.coding(fields, coding())
		if codingField().MatchString(fields) {
			f.coding("charset="+content[:min(len(content), 64)], coding())
		}
		if placeholder().MatchString(content) {
			f.coding(contentType, coding())
			exact = contentType == "" || bodyKind(contentType) == jsonBody || textPlain().MatchString(contentType)
			pieces[i] = head + crlf + crlf + f.body(content, contentType, plain) // the boundary alone splits it
		} else {
			exact = !nested().MatchString(contentType) && (m[3] != "" || isText(content))
		}
	}
	filled := strings.Join(pieces, crlf+delimiter)[len(crlf):]
	if !exact || delimiters(filled) != last { // a secret may have one, too
		f.fail(`a multipart body with a secret has only parts with the lines Content-Disposition: form-data; name="NAME" and a plain Content-Type, one boundary, the secret in parts of text or JSON, and other bytes in parts with a filename`)
	}
	return filled
}

// pairs returns the names and values of a query and, if the body is one, of a form.
func (r *Request) pairs(query string) iter.Seq2[string, string] {
	if bodyKind(r.Header.Get("Content-Type")) == formBody || r.Header.Get("Content-Type") == "" { // Rack treats a body without a type as a form
		query += "&" + string(r.Body)
	}
	return func(yield func(key, value string) bool) {
		for pair := range strings.SplitSeq(strings.ReplaceAll(query, ";", "&"), "&") { // some servers split at both
			if key, value, _ := strings.Cut(pair, "="); !yield(unescape(key), unescape(value)) {
				return
			}
		}
	}
}

// headerKey returns the name of a header as compared by servers that make a variable of
// it, in which - and _ are the same.
func headerKey(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

var (
	// charset finds the charset in the content type of a response. likeASCII are the charsets
	// in which the bytes of ASCII are those characters.
	charset   = lazy.Regexp(`(?i)charset\*?\s*=\s*["']?([^"';,\s]*)`)
	likeASCII = lazy.Regexp(`(?i)^(?:|utf-?8|(?:us-)?ascii|iso[-_]8859-[0-9]{1,2}|latin[0-9]|(?:windows|cp)-?(?:125[0-9]|874)|koi8-[ru]|gb2312|gbk|gb18030|big5|euc-(?:jp|kr)|shift_jis)$`)
)

// checkPlain refuses a response in which secrets could not be found: a compressed
// response, or one in another charset. The reason quotes nothing of a response that was
// not searched: a server may have put a secret there.
func checkPlain(header http.Header) error {
	if len(header["Content-Range"]) > 0 {
		return Denied("the response is a part of something larger, and could not be searched for secrets")
	}
	for _, list := range header["Content-Encoding"] {
		for _, coding := range splitList(list) {
			if !strings.EqualFold(coding, "identity") {
				return Denied("the response has a Content-Encoding, and could not be searched for secrets")
			}
		}
	}
	for _, m := range charset().FindAllStringSubmatch(strings.Join(header["Content-Type"], "\n"), -1) {
		if !likeASCII().MatchString(m[1]) {
			return Denied("the response is in a character set that is not like ASCII, and could not be searched for secrets")
		}
	}
	return nil
}
