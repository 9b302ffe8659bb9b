package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
)

// Costs of a regular expression. Go's take a time to match that grows with the text, but they can
// take much memory: x{1000} is seven bytes, and \pL is 680 ranges that are copied for every
// repetition. Their size is known before anything is compiled.
const (
	stepBytes    = 512      // that an instruction takes at most, see patternSteps
	parsedBytes  = 256      // that the parser needs for a byte of the text
	classBytes   = 16 << 10 // that it needs for a class of Unicode
	foldedSteps  = 64 << 10 // for a range of other letters than ASCII's, which it folds one by one
	rangesOfStep = 4        // ranges of a class that cost as much as one instruction

	// Where a schema of an old draft says that a text is a regular expression, a larger one does
	// not match. That is recorded, so the two numbers are fixed.
	maxTextSteps = 2_000
	maxTextBytes = 4 << 10
)

// patterns compiles the regular expressions of a schema with its budget. Later ones are texts in
// documents.
type patterns struct {
	budget *work.Budget
	held   int            // bytes that the compiled expressions keep
	of     map[string]int // steps by expression
	closed bool
}

func (p *patterns) compile(expr string) (jsonschema.Regexp, error) {
	budget := p.budget
	if p.closed {
		if len(expr) > maxTextBytes {
			return nil, errTextPattern
		}
		budget = work.Trusted(context.Background())
	}
	steps, err := patternSteps(budget, expr)
	switch {
	case err != nil:
		return nil, err
	case p.closed && steps > maxTextSteps:
		return nil, errTextPattern
	case !p.closed:
		p.of[expr] = steps
		p.held += steps * stepBytes
	}
	return regexp.Compile(expr)
}

var errTextPattern = errors.New("this pattern is too large")

// folding matches the flag that makes an expression ignore case.
var folding = lazy.Regexp(`\(\?[imsU]*i`)

// ParsePattern parses a regular expression within what the budget allows.
func ParsePattern(b *work.Budget, expr string) (*syntax.Regexp, error) {
	steps := len(expr)
	if folding().MatchString(expr) && strings.ContainsFunc(expr, func(r rune) bool { return r == '\\' || r > unicode.MaxASCII }) {
		steps += strings.Count(expr, "-") * foldedSteps
	}
	parsing := len(expr)*parsedBytes + (strings.Count(expr, `\p`)+strings.Count(expr, `\P`))*classBytes
	defer b.Release(parsing)
	if err := cmp.Or(b.Spend(steps), b.Hold(parsing)); err != nil {
		return nil, fmt.Errorf("the pattern is too large: %w", err)
	}
	return syntax.Parse(expr, syntax.Perl)
}

// patternSteps returns about how large an expression becomes: the number of instructions of its
// automaton, which is more than zero. They take 40 to 400 bytes each and stay held.
func patternSteps(b *work.Budget, expr string) (int, error) {
	re, err := ParsePattern(b, expr)
	if err != nil {
		return 0, err
	}
	n := max(instructions(re), 1)
	if err := cmp.Or(b.Spend(n), b.Hold(n*stepBytes)); err != nil {
		return 0, fmt.Errorf("the patterns are too large together: %w", err)
	}
	return n, nil
}

func instructions(re *syntax.Regexp) int {
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
		total += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		total *= max(re.Min, re.Max, 1) // without an upper bound, Max is -1
	}
	return total
}
