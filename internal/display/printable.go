package display

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns s with every rune that is not printable replaced by its Go
// escape. Line breaks and tabs are escaped as well, so the result is one line; so
// are the characters that reorder or hide text.
func Printable(s string) string { return EscapeRunes(s, strconv.IsPrint) }

// ASCII is [Printable] for texts that are compared: it escapes what is not ASCII as well, so
// that letters that look alike differ and each character is as wide as any other.
func ASCII(s string) string {
	return EscapeRunes(s, func(r rune) bool { return r < utf8.RuneSelf && strconv.IsPrint(r) })
}

// Visible reports whether r leaves a visible mark: it is printable, and neither a filler nor a
// variation selector, with which texts are hidden in texts.
func Visible(r rune) bool {
	return strconv.IsPrint(r) && r != '\u2800' && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Invisible reports whether r is a character that a model reads and a person does not see: a
// control character other than a line break or tab, a bidirectional override, a zero-width
// character, one of the tag characters in which instructions have been smuggled, or a byte that
// is not UTF-8.
func Invisible(r rune) bool {
	return r != '\n' && r != '\t' && (r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co))
}

// WithoutInvisible returns s without [Invisible] characters.
func WithoutInvisible(s string) string {
	return strings.Map(func(r rune) rune {
		if Invisible(r) {
			return -1
		}
		return r
	}, s)
}

// Clip shortens a text of more than most bytes, between characters.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// PrintableText keeps the lines of s and makes each printable. Tabs become spaces, because
// programs and the messages of compilers are indented with them.
func PrintableText(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = Printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// EscapeRunes returns s with every rune that is not plain, and every byte that is
// no UTF-8, replaced by its Go escape.
func EscapeRunes(s string, plain func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else if plain(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// JSON encodes a value as [json.MarshalIndent] does, except that <, > and & stand for themselves.
// Without an indent it is on one line.
func JSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// PrintableJSON returns a JSON document with the same value in which every
// unprintable rune is escaped, except for the runes that the caller names. Outside
// of strings a document on one line has none, so escapes occur only in strings.
func PrintableJSON(doc []byte, but ...rune) []byte {
	var b bytes.Buffer
	for len(doc) > 0 {
		r, size := utf8.DecodeRune(doc)
		switch {
		case r == utf8.RuneError && size == 1: // JSON has no such byte
			b.WriteString(`\ufffd`)
		case strconv.IsPrint(r) || slices.Contains(but, r):
			b.Write(doc[:size])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		doc = doc[size:]
	}
	return b.Bytes()
}

// PrintableError returns the text of an error as one printable line. Joined errors have a line
// each: a semicolon replaces the break.
func PrintableError(err error) string { return Printable(OneLine(err.Error())) }

// OneLine joins the non-empty lines of a text with semicolons.
func OneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// Shorten cuts a printable text to at most width characters, at least 3.
func Shorten(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	dots := min(max(width, 0), 3)
	return string([]rune(s)[:max(width-dots, 0)]) + "..."[:dots]
}

// Command returns a command to paste into a POSIX shell: words of this program, followed by
// arguments of any origin. No argument can become a flag, or more than one word.
func Command(command string, args ...string) string {
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		command += " --"
	}
	for _, arg := range args {
		command += " " + ShellWord(arg)
	}
	return command
}

// ShellWord returns s as one word for a POSIX shell. Characters that are not printable are shown as
// escapes, so such a word does not work.
func ShellWord(s string) string {
	s = Printable(s)
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+:,./_-", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !safe(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
