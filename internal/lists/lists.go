// Package lists has what package slices of the standard library lacks.
package lists

// Map returns what a function makes of each item of a list. Of an empty list it makes an empty one, which is
// not nil.
func Map[S, T any](items []S, of func(S) T) []T {
	all := make([]T, len(items))
	for i, item := range items {
		all[i] = of(item)
	}
	return all
}
