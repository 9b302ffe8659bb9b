package egress

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A guest writes what stands around a secret, and says how all of it is to be read. So
// it could have a server that gives back what it was sent give a secret back as
// something else, which tells the secret and is not found. The checks here refuse that.

// opensEscape finds a placeholder behind the beginning of an escape. Of "\u00" and a
// secret, a server that reads JSON makes one character, which has the first two of
// the secret in it, and the rest of the secret.
var opensEscape = regexp.MustCompile(`(?i)(?:%(?:25)*(?:u[0-9a-f]{0,3}|[0-9a-f]?)|\\(?:x[0-9a-f]?|u[0-9a-f]{0,3}|u\{[0-9a-f]*|[0-7]{0,2})|&(?:#[0-9]*|#x[0-9a-f]*)?)\{\{secret:`)

var (
	// charset finds what a content type says of characters, and charsetInside what a
	// part of a multipart body or an XML document does.
	charset       = regexp.MustCompile(`(?i)charset\*?\s*=\s*["']?([^"';,\s]*)`)
	charsetInside = regexp.MustCompile(`(?i)(?:<\?xml[^>]*\sencoding|content-type\s*:[^\r\n]*charset\*?)\s*=\s*["']?([^"';,>?\s]*)`)

	// likeASCII are the character sets in which the bytes of ASCII are those
	// characters, and nothing else is.
	likeASCII = regexp.MustCompile(`(?i)^(?:|utf-?8|(?:us-)?ascii|iso[-_]8859-[0-9]{1,2}|latin[0-9]|(?:windows|cp)-?(?:125[0-9]|874)|koi8-[ru]|gb2312|gbk|gb18030|big5|euc-(?:jp|kr)|shift_jis)$`)

	// transferEncoding finds how a part of a multipart body is encoded.
	transferEncoding = regexp.MustCompile(`(?i)content-transfer-encoding\s*:\s*([a-z0-9-]*)`)
	asItIs           = regexp.MustCompile(`(?i)^(?:7bit|8bit|binary)$`)
)

// unlike returns the first thing that an expression finds in text and that is not as
// it should be, or "".
func unlike(should, finds *regexp.Regexp, text string) string {
	for _, m := range finds.FindAllStringSubmatch(text, -1) {
		if !should.MatchString(m[1]) {
			return m[1]
		}
	}
	return ""
}

// checkReading refuses a request with secrets that has its server read them as
// something else.
func (r *Request) checkReading(secrets []Placeholder) error {
	if len(secrets) == 0 {
		return nil
	}
	other := unlike(likeASCII, charset, r.Header.Get("Content-Type"))
	inBody := func(p Placeholder) bool { return p.Place == PlaceBody }
	if slices.ContainsFunc(secrets, inBody) && r.bodyKind() == rawBody {
		other = cmp.Or(other, unlike(likeASCII, charsetInside, string(r.Body)))
		if coding := unlike(asItIs, transferEncoding, string(r.Body)); coding != "" {
			return Denied("a body with a secret is sent as it is, not as %s", quote(coding))
		}
	}
	if other != "" {
		return Denied("a request with a secret is sent in UTF-8, not in %s", quote(other))
	}
	return nil
}

// checkPlain refuses a response in which secrets could not be found: one that is
// compressed all the same, or in other characters.
func checkPlain(header http.Header) error {
	for _, list := range header["Content-Encoding"] {
		for _, coding := range splitList(list) {
			if !strings.EqualFold(coding, "identity") {
				return Denied("the response is encoded as %s, and could not be searched for secrets", quote(coding))
			}
		}
	}
	if name := unlike(likeASCII, charset, strings.Join(header["Content-Type"], "\n")); name != "" {
		return Denied("the response is in %s, and could not be searched for secrets", quote(name))
	}
	return nil
}

// read returns what a server may make of a value that it reads as encoded, though the
// host did not encode it: in a body whose type does not say how it is read, or where
// a header is one of HTTP's that hold base64.
func read(value string) (all []string) {
	all = append(all, strings.ReplaceAll(value, "+", " "))
	for _, decode := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
		if text, err := decode(value); err == nil {
			all = append(all, text)
		}
	}
	var text string
	if json.Unmarshal([]byte(`"`+value+`"`), &text) == nil {
		all = append(all, text)
	}
	standard := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(value, "="))
	if decoded, err := base64.RawStdEncoding.DecodeString(standard); err == nil {
		all = append(all, string(decoded))
	}
	return all
}
