package abi

import "strings"

// IsToken reports whether s is a token of RFC 9110, section 5.6.2, as methods and the names
// of headers are.
func IsToken(s string) bool {
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// IsFieldValue reports whether s can be the value of a header (RFC 9110, section 5.5): no
// control characters but tabs, no white space at its ends.
func IsFieldValue(s string) bool {
	control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
	return !strings.ContainsFunc(s, control) && s == strings.Trim(s, " \t")
}
