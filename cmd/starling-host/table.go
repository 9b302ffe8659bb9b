package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// column is a column of a table.
type column[T any] struct {
	title string
	text  func(T) string
	right bool // its texts end below each other
	zero  string
	// leave is 0 for a column that stays. If the table is too wide, the one with the greatest is
	// left out first.
	leave int
	// least is the width down to which the texts may be cut, or 0.
	least int
}

// maxColumn bounds a column of a table in a file, in characters.
const maxColumn = 160

// printTable prints a table as wide as the terminal. No text is broken: columns that hold nothing
// but their zero are left out, then the least important ones, and then long texts are cut. under
// returns a further line for a row, or nothing.
func printTable[T any](a *app, rows []T, under func(T) string, columns ...column[T]) {
	line := a.stdout.width()
	natural, width := make([]int, 0), make([]int, 0)
	columns = slices.DeleteFunc(columns, func(c column[T]) bool {
		return c.leave > 0 && len(rows) > 0 && !slices.ContainsFunc(rows, func(r T) bool { return c.text(r) != c.zero })
	})
	used := -2
	for _, c := range columns {
		n := utf8.RuneCountInString(c.title)
		for _, r := range rows {
			n = max(n, min(utf8.RuneCountInString(printable(c.text(r))), maxColumn))
		}
		natural, width = append(natural, n), append(width, n)
		if c.least > 0 {
			width[len(width)-1] = min(n, c.least)
		}
		used += width[len(width)-1] + 2
	}
	for line > 0 && used > line {
		at := -1
		for i, c := range columns {
			if c.leave > 0 && (at < 0 || c.leave > columns[at].leave) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		used -= width[at] + 2
		columns, natural, width = slices.Delete(columns, at, at+1), slices.Delete(natural, at, at+1), slices.Delete(width, at, at+1)
	}
	for i := len(columns) - 1; i >= 0; i-- {
		more := natural[i] - width[i]
		if line > 0 {
			more = min(more, max(line-used, 0))
		}
		width[i] += more
		used += more
	}
	write := func(look func(column[T], string) style, text func(column[T]) string) {
		words := make([]string, len(columns))
		for i, c := range columns {
			words[i] = shorten(printable(text(c)), width[i])
		}
		for len(words) > 1 && words[len(words)-1] == "" {
			words = words[:len(words)-1]
		}
		for i, word := range words {
			pad := strings.Repeat(" ", max(width[i]-utf8.RuneCountInString(word), 0))
			switch {
			case columns[i].right:
				word = pad + word
			case i < len(words)-1:
				word += pad
			}
			end := "  "
			if i == len(words)-1 {
				end = "\n"
			}
			a.stdout.printf("%s"+end, styled{look(columns[i], text(columns[i])), word})
		}
	}
	write(func(column[T], string) style { return strong }, func(c column[T]) string { return c.title })
	for _, r := range rows {
		write(func(c column[T], text string) style {
			switch {
			case c.title == "STATUS" || c.title == "STATE":
				return statusStyle(text)
			case strings.HasSuffix(c.title, "ERROR"):
				return bad
			}
			return plain
		}, func(c column[T]) string { return c.text(r) })
		if text := under(r); text != "" {
			a.stdout.printf("  %s\n", text)
		}
	}
}

// nothing is for tables whose rows have one line.
func nothing[T any](T) string { return "" }
