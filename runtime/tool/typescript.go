package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
)

// TypeScript declares tools for a model that writes code: as the object "tools", whose
// methods are the tools. The types come from the schemas; parts that TypeScript cannot
// express are unknown. The type of an output is known for tools with a method OutputSchema.
func TypeScript(tools ...Tool) string {
	var b strings.Builder
	b.WriteString("declare const tools: {\n")
	for _, t := range tools {
		b.WriteString(indent(comment(t.Description())+propertyName(t.Name())+
			"(input: "+typeOf(t.Schema())+"): Promise<"+typeOf(outputOf(t))+">;", "  ") + "\n")
	}
	b.WriteString("};\n")
	return b.String()
}

// outputOf returns the output schema of a tool, or nothing.
func outputOf(t Tool) json.RawMessage {
	type described interface {
		Tool
		OutputSchema() json.RawMessage
	}
	if d, ok := Inside[described](t); ok {
		return d.OutputSchema()
	}
	return nil
}

// typeSchema has the parts of a schema that become a TypeScript type.
type typeSchema struct {
	Type       json.RawMessage            `json:"type"` // a name, or a list of names
	Enum       []json.RawMessage          `json:"enum"`
	Const      json.RawMessage            `json:"const"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Additional json.RawMessage            `json:"additionalProperties"`
	Items      json.RawMessage            `json:"items"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AllOf      []json.RawMessage          `json:"allOf"`
	Ref        string                     `json:"$ref"`
}

// maxTypeDepth bounds the nesting of types; deeper ones are unknown.
const maxTypeDepth = 8

// maxTypeSchema bounds a schema that becomes a type, in bytes: a model has to read the type. It
// also bounds the names, descriptions and values in the type, where each reference counts its
// target again; the rest is unknown.
const maxTypeSchema = 256 << 10

func typeOf(schema json.RawMessage) string {
	if len(schema) > maxTypeSchema {
		return "unknown"
	}
	t := &typer{root: schema, left: maxTypeSchema, members: map[string]map[string]json.RawMessage{}, open: map[string]bool{}}
	return t.typeAt(schema, maxTypeDepth)
}

// typer makes the type of one schema.
type typer struct {
	root    json.RawMessage
	left    int                                   // of maxTypeSchema
	members map[string]map[string]json.RawMessage // of the objects in the schema that references pass, by pointer
	open    map[string]bool                       // references that are being followed
}

// typeAt returns the type of a schema: the intersection of its own type with the known types
// of its references, allOf, anyOf and oneOf.
func (t *typer) typeAt(schema json.RawMessage, depth int) string {
	var s typeSchema
	if t.left -= 8; depth == 0 || t.left < 0 || len(schema) == 0 || json.Unmarshal(schema, &s) != nil {
		return "unknown"
	}
	var parts []string
	add := func(part string) {
		if part != "unknown" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	below := func(one json.RawMessage) string { return t.typeAt(one, depth-1) }
	add(t.own(&s, depth))
	if s.Ref != "" && !t.open[s.Ref] {
		t.open[s.Ref] = true
		add(below(t.at(s.Ref)))
		delete(t.open, s.Ref)
	}
	for _, one := range s.AllOf {
		add(below(one))
	}
	add(union(s.AnyOf, below))
	add(union(s.OneOf, below))
	switch len(parts) {
	case 0:
		return "unknown"
	case 1:
		return parts[0]
	}
	for i, part := range parts {
		if strings.Contains(part, " | ") {
			parts[i] = "(" + part + ")"
		}
	}
	return strings.Join(parts, " & ")
}

// at returns the schema that a reference within the document names, or nil.
func (t *typer) at(ref string) json.RawMessage {
	switch pointer, within := strings.CutPrefix(ref, "#"); {
	case !within:
		return nil
	case pointer == "":
		return t.root
	default:
		slash := strings.LastIndexByte(ref, '/')
		if slash < 0 {
			return nil // an anchor
		}
		of := ref[:slash]
		if _, known := t.members[of]; !known {
			var members map[string]json.RawMessage
			_ = json.Unmarshal(t.at(of), &members) // nil for what has none
			t.members[of] = members
		}
		return t.members[of][strings.ReplaceAll(strings.ReplaceAll(ref[slash+1:], "~1", "/"), "~0", "~")]
	}
}

// own returns the type of a schema without the schemas it refers to. A schema with
// properties but no type is an object.
func (t *typer) own(s *typeSchema, depth int) string {
	scalar := func(value json.RawMessage) string { // as a separate type
		t.left -= len(value)
		if text := strings.TrimSpace(string(value)); t.left >= 0 && text != "" && text[0] != '{' && text[0] != '[' {
			return text
		}
		return "unknown"
	}
	switch {
	case len(s.Const) > 0:
		return scalar(s.Const)
	case len(s.Enum) > 0:
		return union(s.Enum, scalar)
	}
	names := []string{""}
	if json.Unmarshal(s.Type, &names[0]) != nil {
		names = nil
		_ = json.Unmarshal(s.Type, &names) // neither: unknown
	}
	if len(s.Type) == 0 && len(s.Properties) > 0 {
		names = []string{"object"}
	} else if len(s.Type) == 0 && len(s.Items) > 0 {
		names = []string{"array"}
	}
	return union(names, func(name string) string {
		switch name {
		case "string", "number", "boolean", "null":
			return name
		case "integer":
			return "number"
		case "array":
			return "Array<" + t.typeAt(s.Items, depth-1) + ">"
		case "object":
			return t.object(s, depth)
		}
		return "unknown"
	})
}

// object returns the type of an object or a map.
func (t *typer) object(s *typeSchema, depth int) string {
	if len(s.Properties) == 0 {
		if string(s.Additional) == "false" {
			return "{}"
		}
		return "Record<string, " + t.typeAt(s.Additional, depth-1) + ">"
	}
	required := map[string]bool{}
	for _, name := range s.Required {
		required[name] = true
	}
	var b strings.Builder
	b.WriteString("{\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var about struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(s.Properties[name], &about) // true and false have none
		if t.left -= len(name) + len(about.Description); t.left < 0 {
			return "unknown"
		}
		optional := "?"
		if required[name] {
			optional = ""
		}
		b.WriteString(indent(comment(about.Description)+propertyName(name)+optional+": "+t.typeAt(s.Properties[name], depth-1)+";", "  ") + "\n")
	}
	return b.String() + "}"
}

// union returns the union of the types, each once, or unknown without any.
func union[T any](all []T, one func(T) string) string {
	var types []string
	seen := map[string]bool{}
	for _, t := range all {
		if name := one(t); !seen[name] {
			seen[name], types = true, append(types, name)
		}
	}
	if len(types) == 0 || seen["unknown"] {
		return "unknown"
	}
	return strings.Join(types, " | ")
}

var identifier = lazy.Regexp(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func propertyName(name string) string {
	if identifier().MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// comment returns a description as a comment on separate lines, or nothing.
func comment(description string) string {
	if description = strings.TrimSpace(description); description == "" {
		return ""
	}
	return "/** " + strings.ReplaceAll(description, "*/", "* /") + " */\n"
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

// MaxDeclared is the most tools that are declared to a model that writes code. If there are
// more, it gets their names, and can search.
const MaxDeclared = 20

// Declarations describes the callable tools to a model that writes code in a language,
// "javascript" or "python".
func Declarations(language string, tools ...Tool) string {
	calls := ""
	if language == "python" && len(tools) > 0 {
		calls = " They are declared in TypeScript: what is declared as NAME(input: {a: A}): Promise<R> is called in Python as tools.NAME(a=...), without await, and returns an R. Objects are dicts."
	}
	switch {
	case len(tools) == 0:
		return "\n\nThere are no other tools."
	case len(tools) <= MaxDeclared:
		return "\n\nThe other tools:" + calls + "\n\n" + TypeScript(tools...)
	}
	names := lists.Map(tools, Tool.Name)
	return fmt.Sprintf("\n\nThere are %d other tools. %s returns what they take and return.%s Their names: %s.\n", len(tools), SearchName, calls, strings.Join(names, ", "))
}

// SearchName is the name of the tool of [Search].
const SearchName = "search_tools"

// Bounds of a search: the tools that it returns, and the size of the query.
const (
	maxFound      = 10
	maxQuery      = 1 << 10 // bytes
	maxQueryWords = 32      // different ones
)

// Search returns a tool that finds tools for a model that writes code. Its output has the
// declarations of the tools whose names and descriptions contain most words of the query.
// It depends only on the tools, and has no effects.
func Search(tools ...Tool) Tool {
	type query struct {
		Query string `json:"query" jsonschema:"description=A name, or some words of what the tool is to do"`
	}
	about := "Finds tools that a program may call, and returns their declarations in TypeScript."
	return Typed(SearchName, about, func(ctx context.Context, in query) (string, error) { return search(ctx, tools, in.Query) })
}

// search returns the declarations of the tools that have words of a query.
func search(ctx context.Context, tools []Tool, query string) (string, error) {
	if len(query) > maxQuery {
		return "", ToolDiscard(fmt.Errorf("the query has %d bytes, and may have %d", len(query), maxQuery))
	}
	times := map[string]int{}
	for _, w := range strings.FieldsFunc(strings.ToLower(query), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if times[w]++; len(times) > maxQueryWords {
			return "", ToolDiscard(fmt.Errorf("the query has more than %d different words", maxQueryWords))
		}
	}
	type match struct {
		Tool
		score int
	}
	var matches []match
	for _, t := range tools {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		name, description, score := strings.ToLower(t.Name()), strings.ToLower(t.Description()), 0
		for w, n := range times {
			if strings.Contains(name, w) {
				score += 3 * n
			}
			if strings.Contains(description, w) {
				score += n
			}
		}
		if score > 0 {
			matches = append(matches, match{t, score})
		}
	}
	if len(matches) == 0 {
		return "no tool has these words in its name or description", nil
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(b.score, a.score) })
	found := matches[:min(len(matches), maxFound)]
	return TypeScript(lists.Map(found, func(m match) Tool { return m.Tool })...), nil
}
