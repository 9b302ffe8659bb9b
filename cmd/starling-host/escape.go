package main

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/display"
)

// printable returns s as one line, with every rune that is not printable replaced by its
// escape. What a printer is given as an argument needs no more of it.
func printable(s string) string { return display.Printable(s) }

// ascii is printable for text that is compared: what is not ASCII is escaped as
// well, so that letters that look alike differ and each character is as wide as
// any other.
func ascii(s string) string {
	return display.EscapeRunes(s, func(r rune) bool { return r < utf8.RuneSelf && strconv.IsPrint(r) })
}

// printableLines returns the lines of s, each printable, without empty ones at the end.
func printableLines(s string) []string {
	s = strings.TrimRight(s, "\r\n")
	if s == "" {
		return nil
	}
	return strings.Split(display.PrintableText(s), "\n")
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

// shorten cuts a printable text to at most width characters.
func shorten(s string, width int) string { return display.Shorten(s, width) }

// pasteable writes a command to be pasted into a POSIX shell: words of this program's, and
// then arguments that may be anybody's. None of them is a flag, or more than one word.
func pasteable(command string, args ...string) string {
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		command += " --"
	}
	for _, arg := range args {
		command += " " + shellWord(arg)
	}
	return command
}

// shellWord returns s as one word for a POSIX shell. What is not printable is shown, not
// made to work.
func shellWord(s string) string {
	s = printable(s)
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+:,./_-", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !safe(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
