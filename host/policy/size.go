package policy

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/tool"
)

// maxPatterns bounds the steps of the patterns of a policy together, see
// [tool.PatternSteps]. Policies come from tenants.
const maxPatterns = 50_000

// whole is the expression that matches a text as a whole.
func (p *Predicate) whole() string { return `\A(?:` + p.Pattern + `)\z` }

// checkPattern refuses what is no expression, and one that is too large. It looks at
// the pattern alone first: "a)|(?:b" would be one between parentheses.
func (p *Predicate) checkPattern(at *config.Node) error {
	var err error
	p.steps, err = tool.PatternSteps(p.Pattern)
	if errors.Is(err, tool.ErrPatternTooLarge) {
		return at.Errorf("bound the length of a text with max_length, and the length of its parts not at all", "%v", err)
	}
	if err != nil {
		return at.Errorf("", "this must be a regular expression: %v", err)
	}
	if _, err := syntax.Parse(p.whole(), syntax.Perl); err != nil {
		return at.Errorf("", "this must be a shorter regular expression: %v", err)
	}
	return nil
}

// compilePatterns compiles the patterns, unless they are too large together. It
// returns their steps.
func (d *document) compilePatterns(root *config.Node) (total int, err error) {
	for _, t := range d.Permissions.Tools {
		for _, p := range t.Arguments {
			total += p.steps
		}
	}
	if total > maxPatterns {
		return 0, root.Get("permissions").Get("tools").Errorf("bound the length of texts with max_length", "the patterns are too large together")
	}
	for _, t := range d.Permissions.Tools {
		for key, p := range t.Arguments {
			if p.steps == 0 {
				continue // it has no pattern
			}
			if p.pattern, err = regexp.Compile(p.whole()); err != nil {
				return 0, root.Get("permissions").Get("tools").Errorf("", "a pattern: %v", err) // which checkPattern has parsed
			}
			t.Arguments[key] = p
		}
	}
	return total, nil
}
