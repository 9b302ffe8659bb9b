// Package pattern bounds the regular expressions of strangers. They cannot take long
// to match, because Go's take a time that grows with the text, but they can take much
// memory: x{1000} is seven bytes, and \pL is 680 ranges that are copied for every
// repetition. Their size is known before anything is compiled.
package pattern

import (
	"errors"
	"regexp/syntax"
)

// Bounds of one expression.
const (
	maxText  = 4 << 10 // bytes
	maxSteps = 2_000

	rangesOfStep = 4 // so many ranges of a class take as much as an instruction
)

// ErrTooLarge says that an expression would become too large.
var ErrTooLarge = errors.New("this pattern is too large")

// Steps returns about how large an expression becomes: the number of instructions of
// its automaton, which take 40 to 350 bytes each. It is more than zero. The error is
// [ErrTooLarge] for more than 2,000 of them or a text of more than 4 KiB, and
// otherwise that of package regexp.
func Steps(expr string) (int, error) {
	if len(expr) > maxText {
		return 0, ErrTooLarge
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	n := steps(re)
	if n > maxSteps {
		return 0, ErrTooLarge
	}
	return max(n, 1), nil
}

// steps counts until it is known to be too much.
func steps(re *syntax.Regexp) int {
	total := 1
	switch re.Op {
	case syntax.OpLiteral:
		total = len(re.Rune)
	case syntax.OpCharClass:
		total += len(re.Rune) / 2 / rangesOfStep // a range is two
	case syntax.OpRepeat:
		total = 0 // it is what it repeats
	}
	for _, sub := range re.Sub {
		if total > maxSteps {
			return total
		}
		total += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		total *= max(re.Min, re.Max, 1) // without an upper bound, Max is -1
	}
	return total
}
