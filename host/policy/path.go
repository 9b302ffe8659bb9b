package policy

import (
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Pattern is a pattern of paths. The zero Pattern matches nothing.
type Pattern struct {
	text     string
	segments []segment
	rest     bool // it ends with **: any number of segments may follow
}

// segment is what stands between two slashes of a pattern.
type segment struct {
	text string // decoded; empty only as the last, for a slash at the end
	any  bool   // it is *: one segment that is not empty
}

var errTwoReadings = errors.New("this could be read as another path: write it without dot segments, empty segments, backslashes, semicolons, spaces at the edge of a segment, invisible characters beside dots alone, and encoded slashes, ? and #")

// ParsePattern reads a pattern: a slash, and segments between slashes. A segment
// stands for itself, or is * for one that is not empty; ** at the end stands for
// any number of segments, none included.
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

// Match reports whether a path is of the pattern. The path is percent-encoded, as
// a request has it, and is decoded once. One that servers may read in more than
// one way is of no pattern.
func (p Pattern) Match(path string) bool {
	segments, ok := splitPath(path)
	return ok && p.match(segments)
}

// match is Match of a path that is split.
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

// splitPath returns the decoded segments of a path; the last is empty if the path
// ends with a slash. It is false for a path of which two servers may make two
// things: with dot segments, with empty segments, or with a character that
// separates segments somewhere and is encoded once or more often.
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

// maxDecoded bounds how often a segment is decoded. No server decodes it so often, and
// a path could be made to take thousands of times.
const maxDecoded = 16

// oneReading looks at a segment as servers may that decode it not at all, once,
// or more often.
func oneReading(s string) bool {
	for range maxDecoded {
		if !utf8.ValidString(s) || strings.ContainsFunc(s, separates) || strings.Contains(strings.ToLower(s), "%u") ||
			s != "" && strings.Trim(strings.Map(dropUnseen, s), ".") == "" || strings.TrimSpace(s) != s {
			return false
		}
		decoded := escape.ReplaceAllStringFunc(s, func(e string) string { c, _ := hex.DecodeString(e[1:]); return string(c) })
		if decoded == s {
			return true
		}
		s = decoded
	}
	return false
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// bestFit are characters that Windows and encodings of Japanese and Korean write as a slash or
// a backslash.
const bestFit = "⁄∕∖⧸⧵⧹¥₩"

// separates reports whether some servers take a character for a slash or a backslash, or for the
// beginning of a query, a fragment, parameters or an escape, or others than ASCII for a dot: when
// they are decoded, or normalised. A server that drops parameters or cuts a path there sees another.
func separates(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsControl(r) || strings.ContainsRune(`/\?#;`, r)
	}
	return unicode.IsControl(r) || strings.ContainsRune(bestFit, r) || strings.ContainsAny(norm.NFKC.String(string(r)), `./\?#;%`)
}

// dropUnseen drops spaces, marks, and characters that have no width or no meaning of their own: a
// server that ignores them sees dots where they stand beside dots.
func dropUnseen(r rune) rune {
	if !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) {
		return -1
	}
	return r
}
