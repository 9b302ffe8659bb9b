package jsonscan

import (
	"unicode/utf16"
	"unicode/utf8"
)

// String returns the text of a JSON string, given with its quotes.
func String(value []byte) (string, error) {
	s := scanner{doc: value}
	if s.peek() != '"' {
		return "", s.fail("not a string")
	}
	if err := s.str(); err != nil {
		return "", err
	}
	if err := s.end(); err != nil {
		return "", err
	}
	return unquote(value), nil
}

// AppendString appends text as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func AppendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// str checks one string, from its opening to its closing quote.
func (s *scanner) str() error {
	s.pos++ // the opening quote
	for s.pos < len(s.doc) {
		switch c := s.doc[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < ' ':
			return s.fail("a control character in a string")
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.doc[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return s.fail("a string that is not UTF-8")
			}
			s.pos += size
		}
	}
	return s.fail("a string without end")
}

// escape checks one escape sequence, a surrogate pair being one.
func (s *scanner) escape() error {
	s.pos++ // the backslash
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
	default:
		return s.fail("an escape that JSON does not have")
	}
	first, err := s.unit()
	if err != nil || !utf16.IsSurrogate(first) {
		return err
	}
	if s.peek() != '\\' {
		return s.fail("half of a surrogate pair")
	}
	s.pos++
	if s.peek() != 'u' {
		return s.fail("half of a surrogate pair")
	}
	second, err := s.unit()
	if err == nil && utf16.DecodeRune(first, second) == utf8.RuneError {
		return s.fail("half of a surrogate pair")
	}
	return err
}

// unit reads the letter u and four hexadecimal digits: one unit of UTF-16.
func (s *scanner) unit() (rune, error) {
	s.pos++ // the u
	var r rune
	for range 4 {
		d := hexDigit(s.peek())
		if d < 0 {
			return 0, s.fail("missing a hexadecimal digit")
		}
		r = r<<4 | d
		s.pos++
	}
	return r, nil
}

func hexDigit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return rune(c - 'A' + 10)
	default:
		return -1
	}
}

// unquote decodes a string that str has accepted.
func unquote(quoted []byte) string {
	text := make([]byte, 0, len(quoted))
	s := scanner{doc: quoted, pos: 1}
	for s.peek() != '"' {
		if s.peek() != '\\' {
			text = append(text, s.doc[s.pos])
			s.pos++
			continue
		}
		s.pos++
		text = s.unescape(text)
	}
	return string(text)
}

// unescape appends what the escape at pos stands for, the backslash being
// behind.
func (s *scanner) unescape(text []byte) []byte {
	if s.peek() != 'u' {
		text = append(text, unescaped(s.peek()))
		s.pos++
		return text
	}
	r, _ := s.unit()
	if utf16.IsSurrogate(r) {
		s.pos++ // the backslash of the other half
		low, _ := s.unit()
		r = utf16.DecodeRune(r, low)
	}
	return utf8.AppendRune(text, r)
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return c
	}
}
