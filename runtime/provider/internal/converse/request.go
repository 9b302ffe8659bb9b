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

// Params returns the options of a request as canonical JSON, by name. A name that
// is not known is an error, because an option that is misspelt would otherwise
// have no effect and nobody would see that.
func Params(raw canon.Raw, known []string) (map[string]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	text, err := canon.ToJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	var params map[string]json.RawMessage
	if err := json.Unmarshal(text, &params); err != nil {
		return nil, fmt.Errorf("params: want a map of options, got %.60s", text)
	}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("params: unknown option %q, known are %s", key, strings.Join(known, ", "))
		}
	}
	return params, nil
}

// Option reads one option into the field of a struct. Members that the struct does not
// have are refused if it is strict.
func Option(name string, value json.RawMessage, into any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(fmt.Appendf(nil, "{%q:%s}", name, value)))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("params: option %q: %w", name, inWords(err))
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
