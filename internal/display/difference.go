package display

import (
	"strings"
	"unicode/utf8"
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
	at := commonPrefix(a, b)
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

// commonPrefix returns the length of the longest common prefix that ends
// between two runes in both texts.
func commonPrefix(a, b string) int {
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

// diffContext is how many equal lines are shown around lines that differ.
const diffContext = 3

// maxDiffCells bounds the work of [LineDifference]: texts whose differing parts have more pairs of
// lines are shown as removed and added in whole.
const maxDiffCells = 1 << 22

// LineDifference returns the lines that lead from one text to another: "- " begins a line that is
// only in a, "+ " one that is only in b, and "  " one that is in both and near a difference. A line
// "..." stands for the lines in both that are left out. Equal texts give no lines.
func LineDifference(a, b string) (lines []string) {
	if a == b {
		return nil
	}
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	before := 0
	for before < min(len(x), len(y)) && x[before] == y[before] {
		before++
	}
	after := 0
	for after < min(len(x), len(y))-before && x[len(x)-1-after] == y[len(y)-1-after] {
		after++
	}
	for _, line := range x[:before] {
		lines = append(lines, "  "+line)
	}
	lines = append(lines, middleDifference(x[before:len(x)-after], y[before:len(y)-after])...)
	for _, line := range x[len(x)-after:] {
		lines = append(lines, "  "+line)
	}
	return nearDifferences(lines)
}

// middleDifference compares by the longest common subsequence.
func middleDifference(x, y []string) (lines []string) {
	equal := make([][]int, len(x)+1) // equal[i][j]: how many lines x[i:] and y[j:] have in common
	for i := range equal {
		if len(x)*len(y) <= maxDiffCells {
			equal[i] = make([]int, len(y)+1)
		}
	}
	for i := len(x) - 1; i >= 0 && equal[i] != nil; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if equal[i][j] = max(equal[i+1][j], equal[i][j+1]); x[i] == y[j] {
				equal[i][j] = equal[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(x) && j < len(y) && equal[0] != nil {
		switch {
		case x[i] == y[j]:
			lines = append(lines, "  "+x[i])
			i, j = i+1, j+1
		case equal[i+1][j] >= equal[i][j+1]:
			lines = append(lines, "- "+x[i])
			i++
		default:
			lines = append(lines, "+ "+y[j])
			j++
		}
	}
	for _, line := range x[i:] {
		lines = append(lines, "- "+line)
	}
	for _, line := range y[j:] {
		lines = append(lines, "+ "+line)
	}
	return lines
}

// nearDifferences leaves out lines that are far from a difference.
func nearDifferences(all []string) (lines []string) {
	kept := 0 // lines of all up to here are shown or stood for
	for i, line := range all {
		if line[0] == ' ' {
			continue
		}
		if from := max(i-diffContext, 0); from > kept {
			lines, kept = append(lines, "..."), from
		}
		to := min(i+diffContext+1, len(all))
		lines, kept = append(lines, all[kept:max(to, kept)]...), max(to, kept)
	}
	if kept < len(all) {
		lines = append(lines, "...")
	}
	return lines
}
