package validate

import (
	"errors"
	"regexp/syntax"
)

// Bounds of one regular expression. Go's take a time to match that grows with the text,
// but they can take much memory: x{1000} is seven bytes, and \pL is 680 ranges that are
// copied for every repetition. Their size is known before anything is compiled.
const (
	maxPatternText  = 4 << 10 // bytes
	maxPatternSteps = 2_000

	rangesOfStep = 4 // ranges of a class that cost as much as one instruction
)

// ErrPatternTooLarge means that an expression would become too large.
var ErrPatternTooLarge = errors.New("this pattern is too large")

// PatternSteps returns about how large an expression becomes: the number of instructions of
// its automaton, which take 40 to 350 bytes each. It is more than zero. The error is
// [ErrPatternTooLarge] for more than 2,000 steps or a text of more than 4 KiB, and
// otherwise package regexp's.
func PatternSteps(expr string) (int, error) {
	if len(expr) > maxPatternText {
		return 0, ErrPatternTooLarge
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	n := patternSteps(re)
	if n > maxPatternSteps {
		return 0, ErrPatternTooLarge
	}
	return max(n, 1), nil
}

// patternSteps counts until it is known to be too much.
func patternSteps(re *syntax.Regexp) int {
	total := 1
	switch re.Op {
	case syntax.OpLiteral:
		total = len(re.Rune)
	case syntax.OpCharClass:
		total += len(re.Rune) / 2 / rangesOfStep // a range is two
	case syntax.OpRepeat:
		total = 0 // its cost is the repeated part's
	}
	for _, sub := range re.Sub {
		if total > maxPatternSteps {
			return total
		}
		total += patternSteps(sub)
	}
	if re.Op == syntax.OpRepeat {
		total *= max(re.Min, re.Max, 1) // without an upper bound, Max is -1
	}
	return total
}
