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

// distance counts the bytes to insert, delete or replace between a and b, the
// Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
