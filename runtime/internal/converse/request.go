package converse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

// Params calls set with each option of a request, as canonical JSON, in the order of their names. An
// unknown name is an error, because a misspelt option would otherwise silently have no effect.
//
// Each option is also read into the field of a struct that into points to, unless that is nil. Members
// that the struct does not have are refused if it is strict.
func Params(raw canon.Raw, known []string, into any, strict bool, set func(name string, value json.RawMessage)) error {
	if len(raw) == 0 {
		return nil
	}
	text, err := canon.ToJSON(raw)
	if err != nil {
		return fmt.Errorf("params: %w", err)
	}
	var params map[string]json.RawMessage
	if err := json.Unmarshal(text, &params); err != nil {
		return fmt.Errorf("params: want a map of options, got %.60s", text)
	}
	names := slices.Sorted(maps.Keys(params))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("params: unknown option %q, known are %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range names {
		if into != nil {
			d := json.NewDecoder(bytes.NewReader(fmt.Appendf(nil, "{%q:%s}", name, params[name])))
			if strict {
				d.DisallowUnknownFields()
			}
			if err := d.Decode(into); err != nil {
				return fmt.Errorf("params: option %q: %w", name, inWords(err))
			}
		}
		set(name, params[name])
	}
	return nil
}

// Check refuses a request without a model or with a negative limit, and the choice
// of a tool that it does not have.
func Check(req *provider.Request) error {
	switch choice := req.ToolChoice; {
	case req.Model == "":
		return errors.New("no model")
	case req.MaxOutputTokens < 0:
		return fmt.Errorf("%d output tokens", req.MaxOutputTokens)
	case choice == "" || choice == "auto" || choice == "none":
		return nil
	case choice == "any" && len(req.Tools) == 0:
		return errors.New(`tool choice: "any" in a request without tools`)
	case choice == "any" || slices.ContainsFunc(req.Tools, func(t provider.ToolDefinition) bool { return t.Name == choice }):
		return nil
	default:
		return fmt.Errorf("tool choice: no tool of the request is called %q", choice)
	}
}

// Declare returns the declarations of tools, with their schemas under a key. A tool without a schema
// gets the other one, or none if that is nil.
func Declare(tools []provider.ToolDefinition, schemaKey string, otherwise any) ([]map[string]any, error) {
	var all []map[string]any
	for _, t := range tools {
		if len(t.Schema) > 0 && !json.Valid(t.Schema) {
			return nil, fmt.Errorf("the schema of the tool %q is not JSON", t.Name)
		}
		d := map[string]any{"name": t.Name}
		if t.Description != "" {
			d["description"] = t.Description
		}
		if schema := provider.ObjectSchema(t.Schema); len(schema) > 0 {
			d[schemaKey] = schema
		} else if otherwise != nil {
			d[schemaKey] = otherwise
		}
		all = append(all, d)
	}
	return all, nil
}

// EachTurn calls add with the role and the content of each turn: the messages of one side before
// the other side speaks again. The results of parallel tool uses have to come back together, and a
// question after them in the same turn. Blocks makes the content of one message; messages that say
// nothing are left out.
func EachTurn[B any](messages []provider.Message, blocks func(provider.Message) ([]B, error), add func(role string, content []B)) error {
	speaks, content := "", []B(nil)
	for i, m := range messages {
		if err := check(m); err != nil {
			return fmt.Errorf("message %d: %w", i+1, err)
		}
		if m.Content == "" && len(m.ToolUses) == 0 && len(m.Reasoning) == 0 && m.ToolResult == nil {
			continue
		}
		role := provider.RoleUser // and of the results of tools
		if m.Role == provider.RoleAssistant {
			role = provider.RoleAssistant
		}
		if speaks != "" && speaks != role {
			add(speaks, content)
			content = nil
		}
		more, err := blocks(m)
		if err != nil {
			return err
		}
		speaks, content = role, append(content, more...)
	}
	if speaks != "" {
		add(speaks, content)
	}
	return nil
}

// check refuses what no turn could carry.
func check(m provider.Message) error {
	assistant := m.Role == provider.RoleAssistant
	switch {
	case m.Role == provider.RoleTool && m.ToolResult == nil:
		return fmt.Errorf("the role %q needs a ToolResult", m.Role)
	case m.Role == provider.RoleTool && m.Content != "":
		return fmt.Errorf("the content of the role %q belongs into its ToolResult", m.Role)
	case m.Role != provider.RoleTool && m.ToolResult != nil:
		return fmt.Errorf("the role %q cannot have a ToolResult", m.Role)
	case !assistant && (len(m.ToolUses) > 0 || len(m.Reasoning) > 0):
		return fmt.Errorf("the role %q cannot have tool uses or reasoning", m.Role)
	case m.Role != provider.RoleTool && m.Role != provider.RoleUser && !assistant:
		return fmt.Errorf("unknown role %q", m.Role)
	}
	return nil
}
