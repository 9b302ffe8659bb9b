package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

const (
	maxQuery   = 16 << 10 // bytes
	maxResults = 10_000
)

// prelude shadows the functions whose result is not decided by the input. The
// program may define them again, as it may any other.
//
// The rest of jq that reaches outside is off by itself: env and $ENV are empty,
// input and inputs, debug, stderr, input_filename, and modules do not compile.
const prelude = `
	def now: error("now is not available: pass the time in args");
	def localtime: gmtime;
	def strflocaltime(f): strftime(f);
	.`

// transform runs the program and returns {"results":[...]}.
func transform(in input) ([]byte, error) {
	code, values, err := compile(in.Query, in.Args)
	if err != nil {
		return nil, err
	}
	out := collector{doc: []byte(`{"results":[`)}
	results := code.Run(in.Data, values...)
	for {
		value, more := results.Next()
		if err, failed := value.(error); failed {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.ExitCode() == 0 {
				break // halt ends the program; what it has put out counts
			}
			return nil, fmt.Errorf("query: %w", err)
		}
		if !more {
			break
		}
		if err := out.add(value); err != nil {
			return nil, err
		}
	}
	return append(out.doc, `]}`...), nil
}

// compile returns the program and the values of its variables.
func compile(text string, args map[string]any) (*gojq.Code, []any, error) {
	if len(text) > maxQuery {
		return nil, nil, fmt.Errorf("query: %d bytes, the limit is %d", len(text), maxQuery)
	}
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, nil, located(text, err)
	}
	shadows, err := gojq.Parse(prelude)
	if err != nil {
		return nil, nil, err
	}
	query.FuncDefs = append(shadows.FuncDefs, query.FuncDefs...)
	names := slices.Sorted(maps.Keys(args))
	values := make([]any, len(names))
	for i, name := range names {
		if !isIdentifier(name) {
			return nil, nil, fmt.Errorf("args: %q is not the name of a variable: use letters, digits and underscores", name)
		}
		names[i], values[i] = "$"+name, args[name]
	}
	code, err := gojq.Compile(query, gojq.WithVariables(names))
	if err != nil {
		return nil, nil, fmt.Errorf("query: %w", err)
	}
	return code, values, nil
}

// located adds to a syntax error where in the program the offending token is:
// line and column, in characters, from 1.
func located(text string, err error) error {
	var syntax *gojq.ParseError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("query: %w", err)
	}
	before := text[:min(max(syntax.Offset-len(syntax.Token), 0), len(text))]
	line := strings.Count(before, "\n") + 1
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
	return fmt.Errorf("query: line %d, column %d: %w", line, column, err)
}

func isIdentifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
