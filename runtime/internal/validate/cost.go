package validate

import "github.com/starling-host/starling/internal/work"

// Bounds on the cost of a document. A step is one schema applied to one value, or as
// much work in a list or a pattern. Tenants choose both sides, which together can take
// minutes and, for a list of all mismatches, gigabytes. Recorded documents were checked
// with these two bounds, so they stay what they are.
var (
	// maxListed is how many steps a document may take whose mismatches are all
	// listed: about 10 us and a kilobyte each, if nothing matches.
	maxListed = work.Limits{Steps: 100_000}
	// maxSteps is how many it may take at all, of about 1 us.
	maxSteps = work.Limits{Steps: 5_000_000}
)

// NewDocument is what the check of one new document may cost: about two seconds. A step takes from
// 0.4 us to 100 us, in an enum of numbers; a unit of [Schema.CheckNew] takes about one.
var NewDocument = work.Limits{Steps: 2_000_000}

// rates say what a step is: list members of an enum, of required and similar lists, or pattern steps
// of a pattern times bytes of a text, of about 10 ns each. Applying a schema is a step, and each of
// its keywords is keyword steps.
type rates struct{ list, pattern, keyword int }

var (
	perListed = rates{10, 1_000, 0}
	perStep   = rates{10, 100, 0}
	perUnit   = rates{1, 100, 1}
)

var (
	// ErrCost is the [*Error] of a document that [Schema.CheckNew] does not look at.
	ErrCost = &Error{Problems: []Problem{{Message: "would take too many units of work to hold against the schema: send fewer values, or give the schema fewer keywords for each"}}}

	errTooMuch  = &Error{Problems: []Problem{{Message: "is too large to be held against the schema"}}}
	errMismatch = &Error{Problems: []Problem{{Message: "does not match the schema, and is too large to say where"}}}
)

// coster charges for a check. It goes where the library goes, or further, until the budget ends.
type coster struct {
	*Schema
	rates
	budget *work.Budget
	err    error
}

// cost charges what holding a document against the schema costs.
func (s *Schema) cost(b *work.Budget, r rates, doc any) error {
	c := coster{s, r, b, nil}
	c.hold(s.root, doc)
	return c.err
}

func (c *coster) spend(steps int) {
	if c.err == nil {
		c.err = c.budget.Spend(steps)
	}
}

// hold counts the cost of a value.
func (c *coster) hold(schema, v any) {
	object, _ := schema.(map[string]any) // or it is true or false
	c.spend(1 + len(object)*c.keyword)
	for keyword, sub := range object {
		if c.err != nil {
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
		if c.err == nil {
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
			if c.err != nil || each && i >= len(list) {
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
			c.spend(len(sub) / c.list)
		case map[string]any:
			c.spend(len(sub) / c.list)
		}
	}
}

// members counts for keywords that are about the members of an object.
func (c *coster) members(keyword string, sub any, members map[string]any) {
	schemas, _ := sub.(map[string]any)
	if keyword == "properties" || keyword == "patternProperties" {
		c.spend(len(schemas) / perListed.list)
	}
	for name, v := range members {
		if c.err != nil {
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
	c.spend(c.patterns[expr] * len(text) / c.pattern)
}
