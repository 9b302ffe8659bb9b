package egress

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scrubber takes secrets out of a response: where one stands, its placeholder is
// put back. It finds a secret
//
//   - as it is, and with any of its characters percent-encoded, escaped as JSON
//     and JavaScript do, or as HTML does;
//   - in base64 and base64url, alone or anywhere inside of something longer;
//   - in hexadecimal;
//   - and each of these of what it was before in one of the forms that requests and
//     pages have it in, see forms.
//
// That keeps out what a server echoes. It is no match for a server that wants to
// tell the guest: one that knows the secret can spell it in ways without end.
type scrubber []pattern

// pattern is what one secret is looked for as.
type pattern struct {
	size        int // of the secret
	placeholder []byte
	forms       []form
}

// form is one of the forms of a secret.
type form struct {
	value   []byte
	encoded [][]byte  // base64 and hexadecimal
	first   [256]bool // how the value may begin
}

// newScrubber prepares for the secrets that are long enough to be recognised, until
// the search is given up. Longer ones come first, since they may hold others.
func newScrubber(search *search, secrets []Secret) scrubber {
	var s scrubber
	for _, secret := range secrets {
		if len(secret.Value) < MinSecretBytes || !search.goesOn(preparing*len(secret.Value)) {
			continue
		}
		s = append(s, pattern{len(secret.Value), []byte(secret.placeholder()), forms(secret.Value)})
	}
	slices.SortStableFunc(s, func(a, b pattern) int { return cmp.Compare(b.size, a.size) })
	return s
}

// forms returns the value, and what it is after one step on its way through a
// server: as a form, a JSON document and a page have it, and as it becomes when its
// bytes are taken for ISO 8859-1, as many servers take those of a header; and what
// it is when a server decodes it that was not encoded, see read. What a server then
// does to these, it does to what it was sent: one that shows the body of a request in
// a JSON document escapes what is escaped already. Most secrets are the same in all
// forms.
func forms(value []byte) []form {
	text := string(value)
	percent := escapeQuery(text)
	all := []string{text, percent, lowerEscapes.ReplaceAllStringFunc(percent, strings.ToLower), html.EscapeString(text)}
	if quoted, ok := jsonString(value); ok {
		ascii := nonASCII.ReplaceAllStringFunc(quoted, unicodeEscapes)
		all = append(all, quoted, markup.ReplaceAllStringFunc(quoted, unicodeEscapes), ascii, strings.ReplaceAll(ascii, "/", `\/`))
	}
	var latin []rune
	for _, c := range value {
		latin = append(latin, rune(c))
	}
	all = append(all, string(latin))
	all = append(all, read(text)...)
	var forms []form
	for i, text := range all {
		if len(text) >= MinSecretBytes && !slices.Contains(all[:i], text) {
			forms = append(forms, newForm([]byte(text)))
		}
	}
	return forms
}

// Encoders agree on what they must escape. Beside that Go's escapes what is markup,
// Python's what is not ASCII, and PHP's that and the slash.
var (
	lowerEscapes = regexp.MustCompile(`%..`)
	markup       = regexp.MustCompile(`[<>&]`)
	nonASCII     = regexp.MustCompile(`[^\x00-\x7f]`)
)

// unicodeEscapes returns the character as \uXXXX, or as two of these.
func unicodeEscapes(char string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(char)) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return b.String()
}

func newForm(value []byte) form {
	f := form{value: value, encoded: encodings(value)}
	for _, c := range []byte{value[0], '%', '\\', '&', '+'} {
		f.first[c] = true
	}
	return f
}

// folded returns the form as it is where case does not count.
func (f *form) folded() form {
	lower := newForm(bytes.ToLower(f.value))
	for n, encoded := range f.encoded { // which is not the lower value encoded
		lower.encoded[n] = bytes.ToLower(encoded)
	}
	return lower
}

// encodings returns the value in hexadecimal, and in both alphabets of base64
// what does not depend on what stands before and behind it: once for each of the
// three places where it may begin in a group of three bytes.
func encodings(value []byte) [][]byte {
	digits := hex.EncodeToString(value)
	all := [][]byte{[]byte(digits), []byte(strings.ToUpper(digits))}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			whole := alphabet.EncodeToString(append(make([]byte, before), value...))
			from, to := (before*8+5)/6, (before+len(value))*8/6
			all = append(all, []byte(whole[from:to]))
		}
	}
	return all
}

// clean returns b without the secrets: b itself if none is there, and nothing if the
// search is given up before all is searched.
func (s scrubber) clean(search *search, b []byte) ([]byte, error) {
	for _, p := range s {
		for _, f := range p.forms {
			b = f.clean(search, b, p.placeholder)
		}
	}
	if search.err != nil {
		return nil, search.err
	}
	return b, nil
}

// names reports whether a secret stands in the name of a header. Case tells nothing
// there: names arrive in the one in which HTTP libraries write them.
func (s scrubber) names(search *search, header string) bool {
	lower := bytes.ToLower([]byte(header))
	for _, p := range s {
		for _, f := range p.forms {
			if len(header) < len(f.value) { // in no form it is longer than the name
				continue
			}
			f := f.folded()
			if !bytes.Equal(f.clean(search, lower, p.placeholder), lower) {
				return true
			}
		}
	}
	return false
}

// clean replaces the value where it stands, escaped or encoded, until the search is
// given up.
func (f *form) clean(search *search, b, placeholder []byte) []byte {
	b = f.cleanEscaped(search, b, placeholder)
	for _, encoded := range f.encoded {
		if search.goesOn(len(b)) && bytes.Contains(b, encoded) {
			b = bytes.ReplaceAll(b, encoded, placeholder)
		}
	}
	return b
}

// cleanEscaped replaces the value where it stands with any of its characters
// escaped.
func (f *form) cleanEscaped(search *search, b, placeholder []byte) []byte {
	var out []byte
	kept := 0
	for i := 0; i < len(b); i++ {
		if !f.first[b[i]] {
			continue
		}
		if !search.goesOn(len(f.value)) {
			break
		}
		n := spelled(b[i:], f.value, maxAmbiguous)
		if n == 0 {
			continue
		}
		out = append(append(out, b[kept:i]...), placeholder...)
		kept = i + n
		i = kept - 1
	}
	if kept == 0 {
		return b
	}
	return append(out, b[kept:]...)
}

// header returns the headers without the secrets. One whose name has a secret in
// it is left out.
func (s scrubber) header(search *search, header http.Header) (http.Header, error) {
	if len(s) == 0 {
		return header, nil
	}
	cleaned := make(http.Header, len(header))
	for name, values := range header {
		if s.names(search, name) {
			continue
		}
		for _, v := range values {
			clean, err := s.clean(search, []byte(v))
			if err != nil {
				return nil, err
			}
			cleaned[name] = append(cleaned[name], string(clean))
		}
	}
	return cleaned, nil
}

// maxAmbiguous bounds how often both readings of a character are tried: as
// itself and as the beginning of an escape.
const maxAmbiguous = 8

// spelled returns how many bytes at the beginning of b spell the value, or 0.
func spelled(b, value []byte, ambiguous int) int {
	total := 0
	for len(value) > 0 {
		n, of := escaped(b, value)
		literal := len(b) > 0 && b[0] == value[0]
		switch {
		case literal && n > 0 && ambiguous > 0:
			if rest := spelled(b[1:], value[1:], ambiguous-1); rest > 0 {
				return total + 1 + rest
			}
		case literal:
			n, of = 1, 1
		case n == 0:
			return 0
		}
		total, b, value = total+n, b[n:], value[of:]
	}
	return total
}

// escaped returns how many bytes at the beginning of b are an escape of how many
// at the beginning of the value, or zeros.
func escaped(b, value []byte) (n, of int) {
	if len(b) == 0 {
		return 0, 0
	}
	switch b[0] {
	case '%':
		if len(b) >= 3 && isHex(b[1:3], value[0]) {
			return 3, 1
		}
	case '+':
		if value[0] == ' ' {
			return 1, 1
		}
	case '\\':
		return backslashed(b, value)
	case '&':
		return entity(b, value)
	}
	return 0, 0
}

func isHex(digits []byte, want byte) bool { return number(digits, 16) == rune(want) }

// number returns the number of a base up to 16, or -1 for what is none and for what is
// beyond all characters. It is asked about each escape of a response, so that errors
// would take more time than everything else.
func number(digits []byte, base rune) rune {
	if len(digits) == 0 {
		return -1
	}
	n := rune(0)
	for _, c := range digits {
		digit := base
		switch lower := c | 0x20; {
		case '0' <= c && c <= '9':
			digit = rune(c - '0')
		case 'a' <= lower && lower <= 'f':
			digit = rune(lower-'a') + 10
		}
		if n = n*base + digit; digit >= base || n > utf8.MaxRune {
			return -1
		}
	}
	return n
}

// backslashed reads the escapes of JSON, and those of JavaScript for single
// characters.
func backslashed(b, value []byte) (n, of int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch c := b[1]; {
	case c == 'u':
		return unicodeEscape(b, value)
	case c == 'x' && len(b) >= 4 && isHex(b[2:4], value[0]):
		return 4, 1
	case strings.IndexByte(`"\/'`, c) >= 0 && value[0] == c:
		return 2, 1
	}
	if i := strings.IndexByte("bfnrt", b[1]); i >= 0 && value[0] == "\b\f\n\r\t"[i] {
		return 2, 1
	}
	return 0, 0
}

// unicodeEscape reads \uXXXX, two of them for a character beyond U+FFFF, and the
// \u{X} of JavaScript.
func unicodeEscape(b, value []byte) (n, of int) {
	want, size := utf8.DecodeRune(value)
	if digits, found := bytes.CutPrefix(b, []byte(`\u{`)); found {
		end := bytes.IndexByte(digits[:min(len(digits), 8)], '}')
		if number(digits[:max(end, 0)], 16) != want || want == utf8.RuneError {
			return 0, 0
		}
		return len(`\u{`) + end + 1, size
	}
	unit := func(at int) rune {
		if len(b) < at+6 || b[at] != '\\' || b[at+1] != 'u' {
			return utf8.RuneError
		}
		return number(b[at+2:at+6], 16)
	}
	switch r := unit(0); {
	case r < 0 || r == utf8.RuneError:
		return 0, 0
	case r == want:
		return 6, size
	case utf16.IsSurrogate(r) && utf16.DecodeRune(r, unit(6)) == want && want != utf8.RuneError:
		return 12, size
	}
	return 0, 0
}

// entities are the characters that HTML and XML escape by name.
var entities = map[string]byte{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\''}

// entity reads a reference to a character: &amp; &#38; &#x26;.
func entity(b, value []byte) (n, of int) {
	end := bytes.IndexByte(b[:min(len(b), 12)], ';')
	if end < 2 {
		return 0, 0
	}
	if c, ok := entities[string(b[1:end])]; ok && c == value[0] {
		return end + 1, 1
	}
	digits, base := b[2:end], rune(10)
	if len(digits) > 0 && digits[0]|0x20 == 'x' {
		digits, base = digits[1:], 16
	}
	want, size := utf8.DecodeRune(value)
	if b[1] != '#' || number(digits, base) != want || want == utf8.RuneError {
		return 0, 0
	}
	return end + 1, size
}
