package display

import "strings"

// Nearest returns the known word that was probably meant, or "": the first that continues the word,
// or the word with the fewest changes, at most one for every three characters or part of them,
// preferably with the same beginning.
func Nearest(word string, known []string) string {
	best, fewest := "", (len(word)+2)/3+1
	if len(word) > 64 {
		return ""
	}
	for _, k := range known {
		if len(word) > 1 && strings.HasPrefix(k, word) {
			return k
		}
		d := distance(word, k)
		if d < fewest || d == fewest && best != "" && best[0] != word[0] && k[0] == word[0] {
			best, fewest = k, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, replace or swap with the next one between a and b, the
// distance of optimal string alignment.
func distance(a, b string) int {
	d := make([][]int, len(a)+1) // of the beginnings of both
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			case i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1]:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1], d[i-2][j-2])
			default:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1])
			}
		}
	}
	return d[len(a)][len(b)]
}
