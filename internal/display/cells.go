package display

import (
	"unicode"

	"golang.org/x/text/width"
)

// Cells returns the number of cells of a terminal that a text takes.
func Cells(text string) int {
	n := 0
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.Is(unicode.Mn, r): // combines with the character before
		case (kind == width.EastAsianWide || kind == width.EastAsianFullwidth) && unicode.IsPrint(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// Fit cuts a printable text to at most n cells.
func Fit(text string, n int) string {
	fitting := text
	for most := n; Cells(fitting) > n; most-- {
		fitting = Shorten(text, most)
	}
	return fitting
}
