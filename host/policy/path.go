package policy

import (
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/starling-host/starling/internal/lazy"
)

// Pattern is a pattern of paths. The zero Pattern matches nothing.
type Pattern struct {
	text     string
	segments []segment
	rest     bool // it ends with **, for any number of further segments
}

// segment is the part of a pattern between two slashes.
type segment struct {
	text string // decoded; empty only for the last one, after a trailing slash
	any  bool   // it is *, which matches any one segment that is not empty
}

var errTwoReadings = errors.New("this could be read as another path: write it without dot segments, empty segments, dots with punctuation alone, backslashes, semicolons, spaces at the edge of a segment, invisible characters beside dots alone, and encoded slashes, ? and #")

// ParsePattern parses a pattern: a slash, and segments between slashes. A segment matches itself, * matches one
// segment that is not empty, and ** at the end matches any number of segments, including zero.
func ParsePattern(s string) (Pattern, error) {
	if !strings.HasPrefix(s, "/") {
		return Pattern{}, errors.New("a path begins with a slash")
	}
	if strings.ContainsAny(s, "?#") {
		return Pattern{}, errors.New("a path has neither a query nor a fragment")
	}
	p := Pattern{text: s}
	literal := s
	if before, ok := strings.CutSuffix(s, "/**"); ok {
		p.rest, literal = true, before
	}
	if literal == "" {
		return p, nil
	}
	decoded, ok := splitPath(literal)
	if !ok {
		return Pattern{}, errTwoReadings
	}
	for i, raw := range strings.Split(literal[1:], "/") {
		if raw != "*" && strings.Contains(raw, "*") {
			return Pattern{}, errors.New("* stands for a whole segment and ** for all that follow: write /users/* or /users/**, and %2A for the character itself")
		}
		p.segments = append(p.segments, segment{decoded[i], raw == "*"})
	}
	return p, nil
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches a path. The path is percent-encoded as in a request, and is decoded once.
// No pattern matches an ambiguous path, see [splitPath].
func (p Pattern) Match(path string) bool {
	segments, ok := splitPath(path)
	return ok && p.match(segments)
}

// match is [Pattern.Match] for a split path.
func (p Pattern) match(segments []string) bool {
	if p.text == "" || len(segments) < len(p.segments) || len(segments) > len(p.segments) && !p.rest {
		return false
	}
	for i, want := range p.segments {
		got := segments[i]
		if want.any && got == "" || !want.any && got != want.text {
			return false
		}
	}
	return true
}

// splitPath returns the decoded segments of a path; the last is empty if the path ends with a slash. It returns false
// for a path that two servers may interpret differently: with dot segments, empty segments, or a separator encoded
// once or more often.
func splitPath(path string) (segments []string, ok bool) {
	raw := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range raw {
		decoded, err := url.PathUnescape(s)
		if err != nil || s == "" && i < len(raw)-1 || !oneReading(s) {
			return nil, false
		}
		segments = append(segments, decoded)
	}
	return segments, strings.HasPrefix(path, "/")
}

// maxDecoded bounds how often a segment is decoded. No server decodes that often, and a crafted path could require
// thousands of passes.
const maxDecoded = 16

// oneReading reports whether a segment is the same for servers that decode it not at all, once, or more often.
func oneReading(s string) bool {
	for range maxDecoded {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, separates) || strings.Contains(strings.ToLower(s), "%u") ||
			s != "" && strings.Trim(strings.Map(dropUnseen, s), ".") == "" || strings.TrimSpace(s) != s || dotsAndMarks().MatchString(s) {
			return false
		}
		decoded := escape().ReplaceAllStringFunc(s, func(e string) string { c, _ := hex.DecodeString(e[1:]); return string(c) })
		if decoded == s {
			return true
		}
		s = decoded
	}
	return false
}

// dotsAndMarks finds a segment of dots and punctuation, as "..+" and "..:". A server that reads a
// plus as a space, or ends a name at a mark, sees a dot segment.
var dotsAndMarks = lazy.Regexp(`^[\pP\pS\pZ\pM\pC]*\.[\pP\pS\pZ\pM\pC]*$`)

var escape = lazy.Regexp(`%[0-9A-Fa-f]{2}`)

// bestFit has characters that Windows and Japanese and Korean encodings convert to a slash or a backslash.
const bestFit = "⁄∕∖⧸⧵⧹¥₩"

// separates reports whether some servers treat a character, after decoding or normalization, as a slash or a
// backslash, as the beginning of a query, a fragment, parameters or an escape, or, for a character outside ASCII, as
// a dot. A server that drops parameters or cuts the path there sees another path.
func separates(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsControl(r) || strings.ContainsRune(`/\?#;`, r)
	}
	return unicode.IsControl(r) || strings.ContainsRune(bestFit, r) || strings.ContainsAny(norm.NFKC.String(string(r)), `./\?#;%`)
}

// dropUnseen drops spaces, marks, and characters without width or meaning of their own. A server that ignores them
// between dots sees a dot segment.
func dropUnseen(r rune) rune {
	if !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		return -1
	}
	return r
}
