package policy

import (
	"regexp/syntax"

	"github.com/starling-host/starling/runtime/yaml"
)

// Bounds of the patterns of arguments, in instructions of the automata that they
// become, of about 40 bytes each. Without them a policy of a few kilobytes would
// need hundreds of megabytes: x{1000} is seven bytes. Policies come from tenants.
const (
	maxPattern  = 2_000
	maxPatterns = 50_000 // of a policy
)

// steps returns about how many instructions an expression becomes, and more than
// most as soon as it is known to be more.
func steps(re *syntax.Regexp, most int) int {
	total := 1
	switch re.Op {
	case syntax.OpLiteral:
		total = len(re.Rune)
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

// checkPattern refuses what is no expression, and before it is compiled one that is
// too large. It looks at the pattern alone: "a)|(?:b" would be one between
// parentheses.
func (p *Predicate) checkPattern(at *yaml.Node) error {
	re, err := syntax.Parse(p.Pattern, syntax.Perl)
	if err != nil {
		return at.Errorf("", "this must be a regular expression: %v", err)
	}
	if p.steps = steps(re, maxPattern); p.steps > maxPattern {
		return at.Errorf("bound the length of a text with max_length, and the length of its parts not at all", "this pattern is too large")
	}
	return nil
}

// checkPatterns refuses patterns that are too large together.
func (d *document) checkPatterns(root *yaml.Node) error {
	total := 0
	for _, t := range d.Permissions.Tools {
		for _, p := range t.Arguments {
			total += p.steps
		}
	}
	if total > maxPatterns {
		return root.Get("permissions").Get("tools").Errorf("bound the length of texts with max_length", "the patterns are too large together")
	}
	return nil
}
