package terminal

import (
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/display"
)

// Column is a column of a table.
type Column[T any] struct {
	Title string
	Text  func(T) string
	Right bool // its texts end below each other
	Zero  string
	// Leave is 0 for a column that stays. If the table is too wide, the one with the greatest is
	// left out first.
	Leave int
	// Least is the width down to which the texts may be cut, or 0.
	Least int
}

// Columns are the columns of rows that have a text for each. The texts below a title that begins with >
// end below each other.
func Columns(titles ...string) (columns []Column[[]string]) {
	for i, title := range titles {
		title, right := strings.CutPrefix(title, ">")
		columns = append(columns, Column[[]string]{Title: title, Right: right, Text: func(row []string) string { return row[i] }})
	}
	return columns
}

// maxColumn bounds a column of a table in a file, in characters.
const maxColumn = 160

// Table prints a table as wide as the terminal. No text is broken: columns that hold nothing
// but their zero are left out, then the least important ones, and then long texts are cut. under
// returns a further line for a row, or nothing; nil is for tables whose rows have one line.
func Table[T any](p *Printer, rows []T, under func(T) string, columns ...Column[T]) {
	line := p.Width()
	natural, width := make([]int, 0), make([]int, 0)
	columns = slices.DeleteFunc(columns, func(c Column[T]) bool {
		return c.Leave > 0 && len(rows) > 0 && !slices.ContainsFunc(rows, func(r T) bool { return c.Text(r) != c.Zero })
	})
	used := -2
	for _, c := range columns {
		n := display.Cells(c.Title)
		for _, r := range rows {
			n = max(n, min(display.Cells(display.Printable(c.Text(r))), maxColumn))
		}
		natural, width = append(natural, n), append(width, n)
		if c.Least > 0 {
			width[len(width)-1] = min(n, c.Least)
		}
		used += width[len(width)-1] + 2
	}
	for line > 0 && used > line {
		at := -1
		for i, c := range columns {
			if c.Leave > 0 && (at < 0 || c.Leave > columns[at].Leave) {
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
	write := func(look func(Column[T], string) Style, text func(Column[T]) string) {
		words := make([]string, len(columns))
		for i, c := range columns {
			words[i] = display.Fit(display.Printable(text(c)), width[i])
		}
		for len(words) > 1 && words[len(words)-1] == "" {
			words = words[:len(words)-1]
		}
		for i, word := range words {
			pad := strings.Repeat(" ", max(width[i]-display.Cells(word), 0))
			switch {
			case columns[i].Right:
				word = pad + word
			case i < len(words)-1:
				word += pad
			}
			end := "  "
			if i == len(words)-1 {
				end = "\n"
			}
			p.Printf("%s"+end, Styled{look(columns[i], text(columns[i])), word})
		}
	}
	write(func(Column[T], string) Style { return Strong }, func(c Column[T]) string { return c.Title })
	for _, r := range rows {
		write(func(c Column[T], text string) Style {
			switch {
			case c.Title == "STATUS" || c.Title == "STATE":
				return StatusStyle(text)
			case strings.HasSuffix(c.Title, "ERROR"):
				return Bad
			}
			return Plain
		}, func(c Column[T]) string { return c.Text(r) })
		if under != nil && under(r) != "" {
			p.Printf("  %s\n", under(r))
		}
	}
}
