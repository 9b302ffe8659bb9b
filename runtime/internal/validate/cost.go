package validate

import (
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds on the cost of a document. A step is one schema applied to one value, or as
// much work in a list or a pattern. Tenants choose both sides, which together can take
// minutes and, for a list of all mismatches, gigabytes.
const (
	// maxListed is how many steps a document may take whose mismatches are all
	// listed: about 10 us and a kilobyte each, if nothing matches.
	maxListed = 100_000
	// maxSteps is how many it may take at all, of about 1 us.
	maxSteps = 5_000_000
)

// maxUnits is how many units a new document may take: about two seconds. A step takes
// from 0.4 us to 100 us, in an enum of numbers; a unit takes about one. Recorded
// documents were checked against maxSteps alone.
const maxUnits = 2_000_000

// budget bounds the check of a document in steps. One step is list members of an enum, of required
// and similar lists, or pattern steps of a pattern times bytes of a text, of about 10 ns each.
// Applying a schema is a step, and each of its keywords is keyword steps.
type budget struct{ steps, list, pattern, keyword int }

var (
	listed = budget{maxListed, 10, 1_000, 0}
	atAll  = budget{maxSteps, 10, 100, 0}
)

var (
	// ErrCost is the [*Error] of a document that [Schema.CheckNew] does not look at.
	ErrCost = &Error{Problems: []Problem{{Message: fmt.Sprintf("would take more than %d units of work to hold against the schema: send fewer values, or give the schema fewer keywords for each", maxUnits)}}}

	errTooMuch  = &Error{Problems: []Problem{{Message: "is too large to be held against the schema"}}}
	errMismatch = &Error{Problems: []Problem{{Message: "does not match the schema, and is too large to say where"}}}
)

// coster counts steps down. It goes where the library goes, or further.
type coster struct {
	root     any
	patterns map[string]int // see [PatternSteps]
	of       budget
	left     int
}

// within reports whether the budget is enough to hold a document against the schema.
func (s *Schema) within(b budget, doc any) bool {
	c := coster{s.root, s.patterns, b, b.steps}
	c.hold(s.root, doc)
	return c.left >= 0
}

// hold counts the cost of a value.
func (c *coster) hold(schema, v any) {
	object, _ := schema.(map[string]any) // or it is true or false
	c.left -= 1 + len(object)*c.of.keyword
	for keyword, sub := range object {
		if c.left < 0 {
			return
		}
		switch keyword {
		case "$ref", "$dynamicRef", "$recursiveRef":
			ref, _ := sub.(string)
			if target, err := resolve(c.root, ref); err == nil {
				c.hold(target, v)
			}
		case "$defs", "definitions", "default", "examples":
		case "allOf", "anyOf", "oneOf", "not", "if", "then", "else":
			c.holdAll(sub, v)
		case "dependentSchemas", "dependencies":
			members, _ := sub.(map[string]any)
			for _, one := range members {
				c.holdAll(one, v)
			}
		case "pattern":
			c.match(sub, v)
		default:
			c.inside(keyword, sub, v)
		}
	}
}

// holdAll counts for one schema, or each of a list.
func (c *coster) holdAll(sub, v any) {
	list, ok := sub.([]any)
	if !ok {
		list = []any{sub}
	}
	for _, one := range list {
		if c.left >= 0 {
			c.hold(one, v)
		}
	}
}

// inside counts for keywords about the content of a value, and for lists.
func (c *coster) inside(keyword string, sub, v any) {
	switch keyword {
	case "items", "prefixItems", "contains", "additionalItems", "unevaluatedItems":
		elements, _ := v.([]any)
		list, each := sub.([]any)
		for i, element := range elements {
			if c.left < 0 || each && i >= len(list) {
				return
			}
			if each {
				sub = list[i]
			}
			c.hold(sub, element)
		}
	case "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames":
		members, _ := v.(map[string]any)
		c.members(keyword, sub, members)
	default:
		switch sub := sub.(type) {
		case []any:
			c.left -= len(sub) / c.of.list
		case map[string]any:
			c.left -= len(sub) / c.of.list
		}
	}
}

// members counts for keywords that are about the members of an object.
func (c *coster) members(keyword string, sub any, members map[string]any) {
	schemas, _ := sub.(map[string]any)
	if keyword == "properties" || keyword == "patternProperties" {
		c.left -= len(schemas) / listed.list
	}
	for name, v := range members {
		if c.left < 0 {
			return
		}
		switch keyword {
		case "properties":
			if schema, ok := schemas[name]; ok {
				c.hold(schema, v)
			}
		case "patternProperties":
			for pattern, schema := range schemas {
				c.match(pattern, name)
				c.hold(schema, v)
			}
		case "propertyNames":
			c.hold(sub, name)
		default:
			c.hold(sub, v)
		}
	}
}

// match counts for a pattern and a text.
func (c *coster) match(pattern, v any) {
	expr, _ := pattern.(string)
	text, _ := v.(string)
	c.left -= c.patterns[expr] * len(text) / c.of.pattern
}

// mismatched reports whether a document does not match, without a list of mismatches: it
// asks whether the document matches "not" the schema, for which the library makes no list.
func (s *Schema) mismatched(doc any) (bool, error) {
	not := jsonschema.Schema{DraftVersion: s.compiled.DraftVersion, Location: s.compiled.Location, Not: s.compiled}
	err := not.Validate(doc)
	var matches *jsonschema.ValidationError
	if err == nil || errors.As(err, &matches) {
		return err == nil, nil
	}
	return false, err
}
