package main

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/host/narrate"
)

// What a tool returns, logs or asks for, and what a database holds, is hostile
// text. A terminal obeys some of it: control characters move the cursor and
// rewrite lines above, bidirectional overrides show words in another order than
// they have, zero-width characters hide. Everything of that origin goes through
// one of the functions of this file before it is printed.

// printable returns s with every rune that is not printable replaced by its Go
// escape. Line breaks and tabs are escaped as well, so the result is one line.
func printable(s string) string { return narrate.Printable(s) }

// ascii is printable for text that is compared: what is not ASCII is escaped as
// well, so that letters that look alike differ and each character is as wide as
// any other.
func ascii(s string) string {
	return narrate.EscapeRunes(s, func(r rune) bool { return r < utf8.RuneSelf && strconv.IsPrint(r) })
}

// printableLines returns the lines of s, each printable. Tabs become spaces,
// because the messages of compilers are indented with them.
func printableLines(s string) []string {
	s = strings.TrimRight(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	if s == "" {
		return nil
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\t", "    "))
	}
	return lines
}

// indented is printableLines for what stands below an error: no line of it can be
// taken for an error or a hint of this program.
func indented(s string) []string {
	lines := printableLines(s)
	for i, line := range lines {
		lines[i] = "  " + line
	}
	return lines
}

// printableJSON returns a JSON document with the same value in which every rune
// that is not printable is an escape of JSON.
func printableJSON(doc []byte) []byte { return narrate.PrintableJSON(doc) }

// shorten cuts a printable text to at most width characters.
func shorten(s string, width int) string { return narrate.Shorten(s, width) }

// shellWord returns s as one word for a POSIX shell, so that a command that is
// printed can be pasted. What is not printable is shown, not made to work.
func shellWord(s string) string {
	s = printable(s)
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./_-", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !safe(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
