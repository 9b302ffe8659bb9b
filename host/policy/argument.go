package policy

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// AllTools is the name of the rule that applies to all tools.
const AllTools = "*"

// ToolRule allows calls of a tool.
type ToolRule struct {
	// Arguments is the JSON Schema that the arguments must match, with the keywords that
	// spec/policy.schema.json lists.
	Arguments canon.Raw `yaml:"arguments" cbor:"arguments,omitzero"`

	// Ask requires the user to confirm each call, see [Asker].
	Ask bool `yaml:"ask" cbor:"ask,omitempty"`

	// Line is where the rule begins in its file.
	Line int `cbor:"-"`

	argumentsNode *config.Node
	schema        *tool.Schema
}

const (
	// callUnits is what the checks of one call may cost, see [tool.Schema.CheckNew].
	callUnits = 1_000_000

	// maxQuoted bounds the quoted parts of a reason, in bytes: a model chooses the names of members.
	maxQuoted = 200
)

// compile prepares the schema of a rule from a file.
func (r *ToolRule) compile(b *work.Budget, at *config.Node) error {
	if at == nil {
		return nil
	}
	_, doc, err := at.JSON()
	if err != nil {
		return err
	}
	if r.schema, err = tool.CompileSchema(b, doc); err != nil {
		return at.Errorf("", "this schema %v", err)
	}
	r.argumentsNode = at
	return nil
}

// checkPattern refuses an expression that matches a part of a text: "cus_[0-9]+" matches "../cus_1". So does "^a|b$",
// and in texts of several lines "(?m)^a$".
func checkPattern(b *work.Budget, text string) error {
	expr, err := tool.ParsePattern(b, text)
	if errors.Is(err, work.ErrExceeded) {
		return err
	}
	if err != nil {
		return fmt.Errorf("this must be a regular expression: %w", err)
	}
	if parts := expr.Sub; expr.Op != syntax.OpConcat || parts[0].Op != syntax.OpBeginText || parts[len(parts)-1].Op != syntax.OpEndText {
		return errors.New("this matches texts with anything before or behind it: write ^(?:PATTERN)$")
	}
	return nil
}

// violated returns the part of the schema that canonical arguments violate, or "", and its line. The text comes from
// the schema and never includes the value, because others can read the log.
func (r *ToolRule) violated(b *work.Budget, doc []byte) (why string, line int) {
	if r.schema == nil {
		return "", 0
	}
	err := r.schema.CheckNew(b, doc)
	if err == nil {
		return "", 0
	}
	var mismatch *tool.SchemaError
	if errors.Is(err, tool.ErrCost) || !errors.As(err, &mismatch) || mismatch.Problems[0].Keyword == "" {
		return "the arguments are too large to check against the policy's schema", r.Line
	}
	problem := mismatch.Problems[0]
	at, key := r.argumentsNode, ""
	for _, token := range strings.Split(problem.Keyword, "/")[1:] {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if i, err := strconv.Atoi(key); err == nil && at.Kind() == config.List {
			at = at.Items()[i]
		} else {
			at = at.Get(key)
		}
	}
	subject := "the arguments"
	if problem.Pointer != "" {
		subject = "the argument " + display.Clip(problem.Pointer, maxQuoted)
	}
	if at.Kind() == config.Bool && key != "additionalProperties" && key != "const" {
		return subject + " must not be there", at.Line()
	}
	_, want, _ := at.JSON() // compile wrote it
	return fmt.Sprintf("%s must match %s: %s", subject, key, display.Clip(string(want), maxQuoted)), at.Line()
}
