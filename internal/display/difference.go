package display

import (
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
)

// How much of a value is shown around the first difference, in characters.
const (
	diffBefore = 32
	diffWidth  = 96
)

// AroundDifference returns the parts of two texts around the first place where
// they differ, escaped to ASCII, and the column of that place in both; -1 when
// the texts are equal.
func AroundDifference(a, b string) (partA, partB string, column int) {
	at := CommonPrefix(a, b)
	start := at
	for range diffBefore {
		_, size := utf8.DecodeLastRuneInString(a[:start])
		start -= size
	}
	left := ASCII(a[start:at])
	if start > 0 {
		left = "..." + left
	}
	partA, partB = left+firstOf(a[at:], diffWidth-len(left)), left+firstOf(b[at:], diffWidth-len(left))
	if a == b {
		return partA, partB, -1
	}
	return partA, partB, len(left)
}

// CommonPrefix returns the length of the longest common prefix that ends
// between two runes in both texts.
func CommonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) {
		ra, size := utf8.DecodeRuneInString(a[n:])
		rb, sizeB := utf8.DecodeRuneInString(b[n:])
		if ra != rb || size != sizeB || a[n:n+size] != b[n:n+size] {
			break
		}
		n += size
	}
	return n
}

// firstOf returns the beginning of s, escaped to at most width characters, but
// never less than one rune of s.
func firstOf(s string, width int) string {
	var b strings.Builder
	for s != "" {
		_, size := utf8.DecodeRuneInString(s)
		piece := ASCII(s[:size])
		if b.Len() > 0 && b.Len()+len(piece) > width {
			return b.String() + "..."
		}
		b.WriteString(piece)
		s = s[size:]
	}
	return b.String()
}

// LineDifference returns the lines that lead from one text to another: "- " begins a line that is
// only in a, "+ " one that is only in b, and "  " one that is in both and near a difference. A line
// "..." stands for the lines in both before and between them. Equal texts give no lines.
func LineDifference(a, b string) (lines []string) {
	const head = 3 // lines with the names of files
	n := 0
	for line := range strings.Lines(string(diff.Diff("", []byte(a+"\n"), "", []byte(b+"\n")))) {
		line = strings.TrimSuffix(line, "\n")
		switch n++; {
		case n <= head, n == head+1 && strings.HasPrefix(line, "@@ -1,"):
		case line[0] == '@': // where the next lines are
			lines = append(lines, "...")
		default:
			lines = append(lines, line[:1]+" "+line[1:])
		}
	}
	return lines
}
