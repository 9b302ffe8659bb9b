package starling

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The host writes the envelope around an input itself, and reads a module's output with a
// strict parser. So this file parses well-formed JSON without checking it again.
// encoding/json would add half a megabyte and its reflection to every module.

// eachMember calls each for the members of an object, in their order, with the name and with
// the bytes of the value, which are part of doc.
func eachMember(doc []byte, each func(name string, value []byte)) {
	at := 1 // after the brace
	next := func() []byte {
		for at < len(doc) && strings.IndexByte(" \t\r\n,:", doc[at]) >= 0 {
			at++
		}
		begin := at
		at += valueLength(doc[begin:])
		return doc[begin:at:at]
	}
	for {
		name, value := next(), next()
		if len(value) == 0 {
			return
		}
		each(unquote(name), value)
	}
}

// valueLength returns the length of the value that text begins with, or zero.
func valueLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']', ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
			if text[i] == '}' || text[i] == ']' {
				depth--
			}
		}
	}
	return len(text)
}

// unquote returns the text of a JSON string as the host writes it: with only escapes that
// Go has.
func unquote(quoted []byte) string {
	text, _ := strconv.Unquote(string(quoted))
	return text
}

// appendString appends text as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, text string) []byte {
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
