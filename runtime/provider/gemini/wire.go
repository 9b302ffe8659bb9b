package gemini

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/runtime/provider"
)

// body is what the adapter puts into the body that the SDK has made. The SDK's own
// types keep neither large integers nor the order in which a schema has its
// members.
type body struct {
	contents     []content
	declarations []declaration
}

// fill has the form that the SDK wants for a change of the body.
func (b *body) fill(made map[string]any) map[string]any {
	made["contents"] = b.contents
	if len(b.declarations) > 0 {
		made["tools"] = []any{map[string]any{"functionDeclarations": b.declarations}}
	}
	return made
}

type declaration struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description,omitempty"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

// content is a turn.
type content struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

type part struct {
	Text             *string           `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	ThoughtSignature []byte            `json:"thoughtSignature,omitempty"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type functionResponse struct {
	ID       string         `json:"id,omitempty"`
	Name     string         `json:"name"`
	Response map[string]any `json:"response"`
}

// event is what is read of an event beside the SDK.
type event struct {
	Candidates []struct {
		Content struct {
			Parts []struct {
				FunctionCall struct {
					Args json.RawMessage `json:"args"`
				} `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
	} `json:"candidates"`
}

// arguments returns the arguments of the call in a part of an event, as the model
// wrote them. A call that takes none may have none.
func arguments(data []byte, part int) (json.RawMessage, error) {
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return nil, err
	}
	if len(ev.Candidates) == 0 || len(ev.Candidates[0].Content.Parts) <= part {
		return nil, errors.New("it is written twice")
	}
	return ev.Candidates[0].Content.Parts[part].FunctionCall.Args, nil
}

// ids gives calls their ids.
type ids struct {
	prefix string
	used   map[string]bool
}

// newIDs returns the ids for the response to a request. A later request has a
// longer history and so another prefix.
func newIDs(req *provider.Request) (*ids, error) {
	h, err := req.Hash()
	if err != nil {
		return nil, err
	}
	return &ids{prefix: "call_" + h.String()[:16], used: map[string]bool{}}, nil
}

// unique returns an id that no other call of the response has: the API's, if it
// is one.
func (s *ids) unique(id string) string {
	if id == "" || s.used[id] {
		id = fmt.Sprintf("%s_%d", s.prefix, len(s.used))
	}
	s.used[id] = true
	return id
}
