package egress

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"html"
	"math/bits"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
)

// scrubber replaces the secrets in a response by their placeholders. It finds a secret
//
//   - as it is, or with any of its characters escaped as in a URL, a string of JSON or C,
//     Markdown, HTML, or mail (quoted-printable);
//   - in letters of other shapes, such as full-width ones, or with invisible characters between;
//   - in base64, base64url, base32, uuencode or hexadecimal, alone or inside of something longer;
//   - as the numbers of its bytes in a list;
//   - with spaces, line ends, commas, colons, quotes or NULs between the characters of any of these,
//     as in a dump of bytes, base64 in mail, and UTF-16;
//   - after two of these steps: percent-encoded and then put into JSON, for instance;
//   - decoded, if it is itself something encoded, and without the scheme or the spaces before it.
//
// This protects from a server that echoes its input. It does not protect from a server that wants to
// reveal the secret to the guest: that server can write it in endless ways.
//
// The search is a hash of each eight bytes of the response, looked up among the hashes
// of the first eight bytes of every spelling of every secret. It reads the response once
// as it is and once for each kind of escape that occurs in it.
type scrubber struct {
	needles map[uint64][]needle // by their first eight bytes; longer ones first
	filter  []uint64            // a bit for each key of needles
	shift   int                 // of a hash, to get its bit
	work    int                 // bytes that may still be compared
	paused  int                 // bytes of work since the search let others run
}

// needle is a spelling of a secret, folded.
type needle struct{ text, placeholder string }

// fold makes equal what servers do not distinguish: the cases of letters, as in the
// name of a header; a space and a plus, as in a form; base64 and base64url.
var fold = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	for c := 'A'; c <= 'Z'; c++ {
		t[c] = byte(c - 'A' + 'a')
	}
	t[' '], t['-'], t['_'] = '+', '+', '/'
	return t
}()

func folded(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = fold[c]
	}
	return string(b)
}

// The bounds on the work of a search, in bytes. The spellings of a secret of 64 KiB take
// about 50 MiB of the first. For the second, a response without near matches needs
// nothing, and a response full of secrets about one byte for each of its own.
const (
	maxSpelled   = 64 << 20
	freeCompared = 1 << 20
	workPerByte  = 8
)

// atOnce is how many bytes a search spells, reads or compares before it lets other goroutines
// run: a tenth of a millisecond's work, and not the ten milliseconds after which Go's
// scheduler does so.
const atOnce = 32 << 10

// searches bounds how many long searches run at the same time in this process. Each takes a
// processor for some tens of milliseconds, and the host needs another one to answer
// requests.
var searches = NewSlots(max(1, runtime.GOMAXPROCS(0)/2))

// longSearch is the number of bytes of a response from which a search waits for a slot. A byte
// of a secret counts for as many as it has spellings, some hundred.
const (
	longSearch  = 32 << 10
	ofOneSecret = 100
)

// pause lets other goroutines run after each [atOnce] bytes of work.
func (s *scrubber) pause(bytes int) {
	if s.paused += bytes; s.paused > atOnce {
		s.paused = 0
		runtime.Gosched()
	}
}

// hashFactor spreads keys over the filter: the upper bits of the product are the hash.
const hashFactor = 0x9e3779b97f4a7c15

// newScrubber prepares the search of a response of the given number of bytes. It leaves out secrets
// that are too short to distinguish from other text.
func newScrubber(secrets []Secret, response int) *scrubber {
	s := &scrubber{needles: map[uint64][]needle{}, work: maxSpelled}
	for _, secret := range secrets {
		if len(secret.Value) < MinSecretBytes {
			continue
		}
		if s.work -= 64 * len(secret.Value); s.work < 0 { // the cost of escapes
			return s
		}
		for _, text := range s.spellings(string(secret.Value)) {
			if len(text) >= MinSecretBytes {
				key := binary.LittleEndian.Uint64([]byte(text))
				s.needles[key] = append(s.needles[key], needle{text, secret.placeholder()})
			}
		}
	}
	if s.work < 0 {
		return s
	}
	s.work = freeCompared + workPerByte*response
	s.filter = make([]uint64, 1<<bits.Len(uint(max(1, len(s.needles)))))
	s.shift = 64 - bits.Len(uint(64*len(s.filter)-1))
	for key, needles := range s.needles {
		bit := key * hashFactor >> s.shift
		s.filter[bit/64] |= 1 << (bit % 64)
		slices.SortStableFunc(needles, func(a, b needle) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return s
}

// spellings returns the texts to look for: the value and its forms after one step;
// each of these in base64 and hexadecimal. A search undoes one more step of escaping.
func (s *scrubber) spellings(value string) []string {
	all := slices.Concat(escapes(value), decoded(value))
	slices.Sort(all)
	all = slices.Compact(all)
	once := slices.Concat(all, encodings(value))
	for _, text := range once {
		if s.work -= 24 * len(text); s.work < 0 {
			return nil
		}
		s.pause(24 * len(text))
		all = append(all, encodings(text)...)
	}
	for i, text := range all {
		s.pause(len(text))
		all[i] = folded(text)
		if strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
			var plain []byte // as escapes of it are read
			for _, r := range text {
				plain = appendPlain(plain, r)
			}
			all = append(all, folded(string(plain)))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	lowerEscapes = lazy.Regexp(`%..`)
	markup       = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`)
)

// escapes returns the forms of the value, which is ASCII, in an HTML form, a page and a JSON
// document. JSON encoders agree on the mandatory escapes; Go's also escapes markup, and PHP's the
// slash. For most values all forms are the same.
func escapes(value string) []string {
	percent := escapeQuery(value)
	all := []string{value, percent, lowerEscapes().ReplaceAllStringFunc(percent, strings.ToLower), html.EscapeString(value)}
	if quoted, ok := jsonString([]byte(value)); ok {
		all = append(all, quoted, markup.Replace(quoted), strings.ReplaceAll(quoted, "/", `\/`))
	}
	return all
}

// decoded returns a server's readings of a value: of the whole, without spaces and quotes around it,
// and of the part after a scheme or a name, as in "Bearer TOKEN" and NAME=VALUE. It may take each for
// an encoded text, for a number, or for the base64 of a user and a password, either of which may be a
// token.
func decoded(value string) (all []string) {
	texts := []string{strings.Trim(value, " \t\r\n\"'`")}
	for _, mark := range []string{" ", "=", ":"} {
		_, rest, _ := strings.Cut(texts[0], mark)
		texts = append(texts, rest)
	}
	for _, text := range texts {
		unquoted, _ := strconv.Unquote(`"` + text + `"`)
		all = append(all, text, unquoted, unescape(text), html.UnescapeString(text), spaced.undo(text))
		if number, err := strconv.ParseFloat(text, 64); err == nil {
			all = append(all, strconv.FormatFloat(number, 'f', -1, 64), strconv.FormatFloat(number, 'e', -1, 64))
		}
		var pairs [][]byte
		word := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
		for before := range min(4, len(word)) { // characters of base64 that change only the bytes beside them
			padded := strings.Repeat("A", before) + word + "AAA"
			if whole, err := base64.RawStdEncoding.DecodeString(padded[:len(padded)&^3]); err == nil {
				pairs = append(pairs, whole[(before*6+7)/8:(before+len(word))*6/8])
			}
		}
		if whole, err := hex.DecodeString(text); err == nil {
			pairs = append(pairs, whole)
		}
		for _, pair := range pairs {
			user, password, _ := strings.Cut(string(pair), ":")
			latin1 := lists.Map(pair, func(c byte) rune { return rune(c) }) // the bytes, in a document that has only text
			all = append(all, string(pair), user, password, string(latin1))
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == value || len(s) < MinSecretBytes })
}

// uuencode has the alphabet of uuencode, with a grave accent for zero, as most encoders write it.
var uuencode = base64.NewEncoding("`!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_").WithPadding(base64.NoPadding)

// encodings returns the value in hexadecimal, as the decimal numbers of its bytes, and in base32,
// uuencode and both alphabets of base64 the part that does not depend on the bytes before and after the value:
// once for each of the places where it may begin in a group of five or three bytes.
func encodings(value string) []string {
	digits := hex.EncodeToString([]byte(value))
	var numbers []byte
	for _, c := range []byte(value) {
		numbers = strconv.AppendUint(numbers, uint64(c), 10)
	}
	all := []string{digits, strings.ToUpper(digits), string(numbers)}
	for before := range 5 {
		whole := base32.StdEncoding.EncodeToString(append(make([]byte, before), value...))
		all = append(all, whole[(before*8+4)/5:(before+len(value))*8/5])
	}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding, uuencode} {
		for before := range 3 {
			whole := alphabet.EncodeToString(append(make([]byte, before), value...))
			all = append(all, whole[(before*8+5)/6:(before+len(value))*8/6])
			if alphabet == uuencode { // a space may stand for zero, too
				all = append(all, strings.ReplaceAll(all[len(all)-1], "`", " "))
			}
		}
	}
	return all
}

// span is the position of a secret in a response.
type span struct {
	from, to    int
	placeholder string
}

// clean returns b without the secrets: b itself if it has none.
func (s *scrubber) clean(b []byte) ([]byte, error) {
	if len(s.needles) == 0 && s.work >= 0 {
		return b, nil
	}
	var found []span
	for i := range readings {
		if r := &readings[i]; r.decode == nil || slices.ContainsFunc(b, func(c byte) bool { return r.opening[c] }) {
			found = s.search(b, r, found)
		}
	}
	if s.work < 0 {
		return nil, Denied("the response nearly has secrets in it at too many places, and could not be searched for them")
	}
	if len(found) == 0 {
		return b, nil
	}
	slices.SortStableFunc(found, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	var out []byte
	kept := 0
	for _, f := range found {
		if f.from >= kept {
			out = append(append(out, b[kept:f.from]...), f.placeholder...)
		}
		kept = max(kept, f.to)
	}
	return append(out, b[kept:]...), nil
}

// search appends the places of secrets in b to found.
func (s *scrubber) search(b []byte, r *reading, found []span) []span {
	var (
		window uint64 // the last eight bytes, folded
		from   [8]int // where each of them begins in b
		count  uint
		room   [8]byte
		yield  = atOnce
	)
	for i := 0; i < len(b) && s.work >= 0; {
		if i >= yield {
			s.pause(atOnce + 1)
			yield = i + atOnce
		}
		text, next := b[i:i+1], i+1
		if r.opening[b[i]] { // before a call of escape, because this is for each byte
			decoded, n := r.escape(room[:0], b[i:])
			text, next = decoded, i+n
		}
		for _, c := range text {
			window = window>>8 | uint64(fold[c])<<56
			from[count%8] = i
			count++
			if bit := window * hashFactor >> (s.shift & 63); s.filter[bit/64]&(1<<(bit%64)) == 0 || count < 8 {
				continue
			}
			if f := s.match(b, from[count%8], s.needles[window], r); f.to > 0 {
				found, next, count = append(found, f), f.to, 0
				break
			}
		}
		i = next
	}
	return found
}

// match returns the first of the needles found at a position in b.
func (s *scrubber) match(b []byte, from int, needles []needle, r *reading) span {
	var room [8]byte
	for _, needle := range needles {
		to, at := from, 0
	compare:
		for to < len(b) && at < len(needle.text) {
			text, n := b[to:to+1], 1
			if r.opening[b[to]] {
				text, n = r.escape(room[:0], b[to:])
			}
			for _, c := range text {
				if at == len(needle.text) || fold[c] != needle.text[at] {
					break compare
				}
				at++
			}
			to += n
		}
		s.pause(to - from + 1)
		if s.work -= to - from + 1; at == len(needle.text) && s.work >= 0 {
			return span{from, to, needle.placeholder}
		}
	}
	return span{}
}

// reading is a way to read a response: plain, or with one kind of escape undone.
type reading struct {
	decode  func(into, b []byte) (text []byte, n int) // n is 0 if b begins with no escape
	opening [256]bool                                 // the bytes that begin an escape
}

func newReading(opens string, decode func(into, b []byte) ([]byte, int)) reading {
	r := reading{decode: decode}
	for _, c := range []byte(opens) {
		r.opening[c] = true
	}
	return r
}

// escape returns what b begins with, and how many bytes of b that is.
func (r *reading) escape(into, b []byte) (text []byte, n int) {
	if r.opening[b[0]] {
		if text, n := r.decode(into, b); n > 0 {
			return text, n
		}
	}
	return b[:1], 1
}

// undo returns a text with its escapes undone.
func (r *reading) undo(s string) string {
	var text []byte
	for b := []byte(s); len(b) > 0; {
		var room [8]byte
		decoded, n := r.escape(room[:0], b)
		text, b = append(text, decoded...), b[n:]
	}
	return string(text)
}

var (
	spaced   = newReading(" \t\r\n\x00,:\"-", separator)
	readings = []reading{
		{}, spaced,
		newReading("%", percentEscape), newReading("\\", jsonEscape), newReading("&", entity), newReading("=", quotedPrintable),
		newReading("%", doubled(percentEscape)), newReading("\\", doubled(jsonEscape)), newReading("&", doubled(entity)),
		newReading("\xc2\xcc\xcd\xd8\xe1\xe2\xe3\xef\xf0\xf3", otherShape), newReading(" &", spacedEntity),
		newReading("% \t\r\n", unbroken(percentEscape)), newReading("\\ \t\r\n", unbroken(jsonEscape)), newReading("& \t\r\n", unbroken(entity)),
		newReading("\r\n", uuencodedBreak),
	}
)

// unbroken undoes an escape and skips white space, escaped or not, as of base64 in lines in JSON.
func unbroken(decode func(into, b []byte) ([]byte, int)) func(into, b []byte) ([]byte, int) {
	white := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	return func(into, b []byte) ([]byte, int) {
		if white(b[0]) {
			return into, 1
		}
		text, n := decode(into, b)
		if n > 0 && len(text) == 1 && white(text[0]) {
			return into, n
		}
		return text, n
	}
}

// uuencodedBreak skips the end of a line and the character behind it, which is the line's length.
func uuencodedBreak(into, b []byte) ([]byte, int) {
	n := 1
	if bytes.HasPrefix(b, []byte("\r\n")) {
		n = 2
	}
	return into, min(n+1, len(b))
}

// otherShape reads a character that is one of ASCII in another shape, and skips an invisible one.
func otherShape(into, b []byte) ([]byte, int) {
	r, n := utf8.DecodeRune(b)
	if text := appendPlain(into, r); r != utf8.RuneError && (len(text) == 0 || text[0] < utf8.RuneSelf) {
		return text, n
	}
	return nil, 0
}

// appendPlain appends a character: as the one of ASCII of which it is another shape (full-width,
// mathematical, circled, a tag), not at all if it is invisible or a mark on the one before, or as it is.
func appendPlain(into []byte, r rune) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	switch {
	case r < utf8.RuneSelf:
	case 0xff01 <= r && r <= 0xff5e:
		r -= 0xfee0
	case 0xe0020 <= r && r <= 0xe007e:
		r -= 0xe0000
	case 0x1d400 <= r && r <= 0x1d6a3:
		r = rune(letters[(r-0x1d400)%52])
	case 0x1d7ce <= r && r <= 0x1d7ff:
		r = '0' + (r-0x1d7ce)%10
	case 0x24b6 <= r && r <= 0x24e9:
		r = rune(letters[r-0x24b6])
	case unicode.In(r, unicode.Cf, unicode.Mn, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return into
	}
	return utf8.AppendRune(into, r)
}

// separator skips the characters that separate those of a text that is broken up or listed, and the
// 0x of a number. It skips a hyphen only before two hexadecimal digits.
func separator(into, b []byte) ([]byte, int) {
	if b[0] == '-' && number(b[1:], 2, 16) < 0 {
		return nil, 0
	}
	if len(b) > 2 && b[1] == '0' && b[2]|0x20 == 'x' {
		return into, 3
	}
	return into, 1
}

// doubled undoes an escape whose first character is itself escaped, as %2541 and &amp;quot;; its
// other characters may be escaped, too.
func doubled(decode func(into, b []byte) ([]byte, int)) func(into, b []byte) ([]byte, int) {
	return func(into, b []byte) ([]byte, int) {
		text, n := decode(into, b)
		if n == 0 || len(text) != 1 || text[0] != b[0] {
			return text, n
		}
		var room [48]byte
		var ends [len(room)]int // in b, of each byte of inner
		inner := append(room[:0], b[0])
		for end := n; end < len(b) && len(inner) < len(room)-utf8.UTFMax; {
			next, width := b[end:end+1], 1
			if b[end] == b[0] {
				if decoded, n := decode(into, b[end:]); n > 0 {
					next, width = decoded, n
				}
			}
			end += width
			for _, c := range next {
				ends[len(inner)] = end
				inner = append(inner, c)
			}
		}
		if again, m := decode(into, inner); m > 0 {
			return again, ends[m-1]
		}
		return append(into, b[0]), n
	}
}

func percentEscape(into, b []byte) ([]byte, int) {
	if c := number(b[1:], 2, 16); c >= utf8.RuneSelf {
		var char []byte
		for i := 0; i < len(b) && b[i] == '%' && number(b[i+1:], 2, 16) >= 0 && len(char) < utf8.UTFMax; i += 3 {
			char = append(char, byte(number(b[i+1:], 2, 16)))
		}
		if text, n := otherShape(into, char); n > 0 {
			return text, 3 * n
		}
		return append(into, byte(c)), 3
	} else if c >= 0 {
		return append(into, byte(c)), 3
	}
	if len(b) > 1 && b[1]|0x20 == 'u' {
		if c := number(b[2:], 4, 16); c >= 0 {
			return appendPlain(into, c), 6
		}
	}
	return nil, 0
}

// jsonEscape reads the escapes of JSON, the \xXX, \u{XX} and \U000000XX of other languages, the \103
// of C, a backslash before punctuation, as Markdown and re.escape write it, and one before a line's end.
func jsonEscape(into, b []byte) ([]byte, int) {
	if len(b) < 2 {
		return nil, 0
	}
	switch c := b[1]; c {
	case '\n':
		return into, 2
	case '\r':
		return into, min(len(b), 3)
	case 'U':
		if r := number(b[2:], 8, 16); r >= 0 {
			return appendPlain(into, r), 10
		}
	case 'x', 'u':
		if end := bytes.IndexByte(b[:min(len(b), 12)], '}'); end > 3 && b[2] == '{' {
			if r := number(b[3:], end-3, 16); r >= 0 {
				return appendPlain(into, r), end + 1
			}
		}
		if c == 'x' {
			if c := number(b[2:], 2, 16); c >= 0 {
				return append(into, byte(c)), 4
			}
			return nil, 0
		}
		r, n := number(b[2:], 4, 16), 6
		if utf16.IsSurrogate(r) && bytes.HasPrefix(b[6:], []byte(`\u`)) {
			if pair := utf16.DecodeRune(r, number(b[8:], 4, 16)); pair != utf8.RuneError {
				r, n = pair, 12
			}
		}
		if r >= 0 {
			return appendPlain(into, r), n
		}
	default:
		if c >= ' ' && c <= '~' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			return append(into, c), 2
		}
		digits, most := 0, 3
		if c == '0' {
			most = 4 // as echo writes them
		}
		for digits < most && number(b[1+digits:], 1, 8) >= 0 {
			digits++
		}
		if c := number(b[1:], digits, 8); c >= 0 {
			return append(into, byte(c)), 1 + digits
		}
		if i := strings.IndexByte("abfnrtv", c); i >= 0 {
			return append(into, "\a\b\f\n\r\t\v"[i]), 2
		}
	}
	return nil, 0
}

// number reads the given number of digits, or returns -1.
func number(b []byte, digits int, base rune) (n rune) {
	if digits == 0 || len(b) < digits {
		return -1
	}
	for _, c := range b[:digits] {
		digit := base
		switch lower := c | 0x20; {
		case '0' <= c && c <= '9':
			digit = rune(c - '0')
		case 'a' <= lower && lower <= 'z':
			digit = rune(lower-'a') + 10
		}
		if n = n*base + digit; digit >= base || n > utf8.MaxRune {
			return -1
		}
	}
	return n
}

// entity reads a reference to a character: &amp; &#38; &#x26; and, as pages are read, &amp &#38 &#x26.
// With more leading zeros than any encoder writes it is not one.
func entity(into, b []byte) ([]byte, int) {
	isWord := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }
	end := 1
	if len(b) > 1 && b[1] == '#' {
		end = 2
	}
	for end < min(len(b), 40) && isWord(b[end]) {
		end++
	}
	if end < len(b) && b[end] == ';' {
		end++
	} else if len(b) > 1 && b[1] == '#' { // the number ends where its digits do
		base, first := rune(10), 2
		if len(b) > 2 && b[2]|0x20 == 'x' {
			base, first = 16, 3
		}
		for end = first; end < min(len(b), 40) && number(b[end:], 1, base) >= 0; end++ {
		}
	} else {
		at := slices.IndexFunc(bareNames, func(name string) bool { return bytes.HasPrefix(b[1:], []byte(name)) })
		if at < 0 {
			return nil, 0
		}
		end = 1 + len(bareNames[at])
	}
	reference := string(b[:end])
	text := html.UnescapeString(reference)
	if text == reference {
		return nil, 0
	}
	for _, r := range text {
		into = appendPlain(into, r)
	}
	return into, end
}

// bareNames are the names of ASCII characters that need no semicolon behind them.
var bareNames = []string{"amp", "AMP", "lt", "LT", "gt", "GT", "quot", "QUOT", "nbsp", "shy"}

// spacedEntity reads a reference, and skips a space before one, which stands for a missing semicolon.
func spacedEntity(into, b []byte) ([]byte, int) {
	if b[0] != ' ' {
		return entity(into, b)
	}
	if len(b) > 1 && b[1] == '&' {
		return into, 1
	}
	return nil, 0
}

// quotedPrintable reads =43 and soft line breaks.
func quotedPrintable(into, b []byte) ([]byte, int) {
	if c := number(b[1:], 2, 16); c >= 0 {
		return append(into, byte(c)), 3
	}
	if bytes.HasPrefix(b, []byte("=\n")) {
		return into, 2
	}
	if bytes.HasPrefix(b, []byte("=\r\n")) {
		return into, 3
	}
	return nil, 0
}

// scrub takes the secrets out of the headers and the body of a response. It drops headers
// with a secret in their name. The body is complete, so no border of chunks or packets
// splits a secret.
func scrub(ctx context.Context, header http.Header, body []byte, secrets []Secret) (http.Header, []byte, error) {
	if len(secrets) == 0 {
		return header, body, nil
	}
	long := len(body)
	for _, secret := range secrets {
		long += ofOneSecret * len(secret.Value)
	}
	if long >= longSearch {
		if err := searches.enter(ctx); err != nil {
			return nil, nil, err
		}
		defer searches.leave()
	}
	s := newScrubber(secrets, len(body))
	cleaned := make(http.Header, len(header))
	for name, values := range header {
		if clean, err := s.clean([]byte(name)); err != nil || string(clean) != name {
			continue
		}
		for _, v := range values {
			clean, err := s.clean([]byte(v))
			if err != nil {
				return nil, nil, err
			}
			cleaned[name] = append(cleaned[name], string(clean))
		}
	}
	body, err := s.clean(body)
	return cleaned, body, err
}
