package policy

import (
	"regexp"
	"regexp/syntax"

	"github.com/starling-host/starling/runtime/yaml"
)

// Bounds of the patterns of arguments, in instructions of the automata that they
// become, of 40 to 350 bytes each. Without them a policy of a few kilobytes would
// need hundreds of megabytes: x{1000} is seven bytes, and \pL is 680 ranges.
// Policies come from tenants.
const (
	maxPatternText = 4 << 10 // bytes
	maxPattern     = 2_000
	maxPatterns    = 50_000 // of a policy
	rangesOfStep   = 4      // so many ranges of a class take as much as an instruction
)

// steps returns about how many instructions an expression becomes, and more than
// most as soon as it is known to be more.
func steps(re *syntax.Regexp, most int) int {
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
		if total > most {
			return total
		}
		total += steps(sub, most)
	}
	if re.Op == syntax.OpRepeat {
		total *= max(re.Min, re.Max, 1) // without an upper bound, Max is -1
	}
	return total
}

// whole is the expression that matches a text as a whole.
func (p *Predicate) whole() string { return `\A(?:` + p.Pattern + `)\z` }

// checkPattern refuses what is no expression, and one that is too large. It looks at
// the pattern alone first: "a)|(?:b" would be one between parentheses.
func (p *Predicate) checkPattern(at *yaml.Node) error {
	if len(p.Pattern) > maxPatternText {
		return at.Errorf("", "this pattern has %d bytes, more than %d", len(p.Pattern), maxPatternText)
	}
	re, err := syntax.Parse(p.Pattern, syntax.Perl)
	if err != nil {
		return at.Errorf("", "this must be a regular expression: %v", err)
	}
	if p.steps = steps(re, maxPattern); p.steps > maxPattern {
		return at.Errorf("bound the length of a text with max_length, and the length of its parts not at all", "this pattern is too large")
	}
	if _, err := syntax.Parse(p.whole(), syntax.Perl); err != nil {
		return at.Errorf("", "this must be a shorter regular expression: %v", err)
	}
	return nil
}

// compilePatterns compiles the patterns, unless they are too large together.
func (d *document) compilePatterns(root *yaml.Node) error {
	total := 0
	for _, t := range d.Permissions.Tools {
		for _, p := range t.Arguments {
			total += p.steps
		}
	}
	if total > maxPatterns {
		return root.Get("permissions").Get("tools").Errorf("bound the length of texts with max_length", "the patterns are too large together")
	}
	for _, t := range d.Permissions.Tools {
		for key, p := range t.Arguments {
			if p.steps == 0 {
				continue // it has no pattern
			}
			var err error
			if p.pattern, err = regexp.Compile(p.whole()); err != nil {
				return root.Get("permissions").Get("tools").Errorf("", "a pattern: %v", err) // which checkPattern has parsed
			}
			t.Arguments[key] = p
		}
	}
	return nil
}
