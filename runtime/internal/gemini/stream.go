package gemini

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// reader implements [converse.Reader].
type reader struct {
	ids    *converse.IDs
	block  int64              // number of the last block
	kind   provider.ChunkKind // of the open block, or 0
	calls  int
	finish string
}

// event is one event of the API.
type event struct {
	Error      *apiError    `json:"error"`
	ResponseID string       `json:"responseId"`
	Candidates []*candidate `json:"candidates"`
	Feedback   struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *struct {
		Prompt     int64 `json:"promptTokenCount"`
		ToolPrompt int64 `json:"toolUsePromptTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
	} `json:"usageMetadata"`
}

type candidate struct {
	Index        int    `json:"index"`
	FinishReason string `json:"finishReason"`
	Content      struct {
		Parts []*received `json:"parts"`
	} `json:"content"`
}

// received is a part of the model's answer, valid or not.
type received struct {
	part
	Text         string `json:"text"`
	FunctionCall *struct {
		functionCall
		PartialArgs  []json.RawMessage `json:"partialArgs"`
		WillContinue bool              `json:"willContinue"`
	} `json:"functionCall"`

	InlineData          *struct{} `json:"inlineData"`
	FileData            *struct{} `json:"fileData"`
	ExecutableCode      *struct{} `json:"executableCode"`
	CodeExecutionResult *struct{} `json:"codeExecutionResult"`
	ToolCall            *struct{} `json:"toolCall"`
	ToolResponse        *struct{} `json:"toolResponse"`
}

// Complete implements [converse.Reader]. A connection that breaks after the finish
// reason may have taken counts away.
func (s *reader) Complete(cleanly bool) bool { return cleanly && s.finish != "" }

// Event implements [converse.Reader].
func (s *reader) Event(m *converse.Message, data converse.ServerEvent) error {
	var ev event
	if err := converse.Decode(data.Data, &ev); err != nil {
		return err
	}
	if ev.Error != nil {
		return ev.Error.fault(cmp.Or(ev.Error.Code, http.StatusInternalServerError))
	}
	m.RequestID = cmp.Or(ev.ResponseID, m.RequestID)
	for i, c := range ev.Candidates {
		if c == nil || c.Index != 0 || i > 0 {
			return converse.Malformed("it has another candidate than the one that was asked for")
		}
		if err := s.candidate(m, c); err != nil {
			return err
		}
	}
	if ev.Feedback.BlockReason != "" {
		if err := s.end(m, ev.Feedback.BlockReason); err != nil {
			return err
		}
	}
	if u := ev.Usage; u != nil { // the counts of the response so far
		m.NewUsage(provider.Usage{InputTokens: u.Prompt + u.ToolPrompt, OutputTokens: u.Candidates + u.Thoughts, CacheReadTokens: u.Cached})
	}
	return nil
}

func (s *reader) candidate(m *converse.Message, c *candidate) error {
	for _, p := range c.Content.Parts {
		if s.finish != "" {
			return converse.Malformed("a part comes after the finish reason")
		}
		if err := s.part(m, p); err != nil {
			return err
		}
	}
	if c.FinishReason == "" || c.FinishReason == "FINISH_REASON_UNSPECIFIED" {
		return nil
	}
	return s.end(m, c.FinishReason)
}

// end closes the open block and records why the response ends. The first
// reason counts.
func (s *reader) end(m *converse.Message, reason string) error {
	s.finish = cmp.Or(s.finish, reason)
	m.StopReason = s.finish
	return s.open(m, 0)
}

func (s *reader) part(m *converse.Message, p *received) error {
	switch {
	case p == nil:
		return converse.Malformed("a part is null")
	case p.FunctionCall != nil:
		return s.call(m, p)
	case p.InlineData != nil, p.FileData != nil, p.ExecutableCode != nil, p.CodeExecutionResult != nil,
		p.FunctionResponse != nil, p.ToolCall != nil, p.ToolResponse != nil:
		return errors.New("only text, thoughts and calls can be received")
	case p.Thought:
		return s.say(m, provider.ChunkReasoning, p.Text, p.ThoughtSignature)
	}
	if err := s.say(m, provider.ChunkText, p.Text, nil); err != nil || len(p.ThoughtSignature) == 0 {
		return err
	}
	return s.say(m, provider.ChunkReasoning, "", textSignature(p.ThoughtSignature))
}

// say adds a piece of text or of a thought. A signature ends the block.
func (s *reader) say(m *converse.Message, kind provider.ChunkKind, text string, signature []byte) error {
	if text == "" && len(signature) == 0 {
		return nil
	}
	if err := s.open(m, kind); err != nil {
		return err
	}
	if err := m.Delta(s.block, kind, text); err != nil || len(signature) == 0 {
		return err
	}
	if err := m.Sign(s.block, string(signature)); err != nil {
		return err
	}
	return s.open(m, 0)
}

// open has a block of the kind open, and no other.
func (s *reader) open(m *converse.Message, kind provider.ChunkKind) error {
	if kind == s.kind {
		return nil
	}
	if s.kind != 0 {
		if err := m.Close(s.block); err != nil {
			return err
		}
	}
	s.kind = kind
	if kind == 0 {
		return nil
	}
	s.block++
	return m.Open(s.block, kind)
}

// call adds a whole call. Its signature comes before it.
func (s *reader) call(m *converse.Message, p *received) error {
	call := p.FunctionCall
	args := string(call.Args)
	switch {
	case len(call.PartialArgs) > 0 || call.WillContinue:
		return converse.Malformed("the call of %q comes in pieces, which was not asked for", call.Name)
	case args == "null":
		args = ""
	case args != "" && args[0] != '{':
		return converse.Malformed("the arguments of the call of %q are not an object", call.Name)
	}
	if len(p.ThoughtSignature) > 0 {
		if err := s.say(m, provider.ChunkReasoning, "", callSignature(s.calls, p.ThoughtSignature)); err != nil {
			return err
		}
	}
	if err := s.open(m, 0); err != nil {
		return err
	}
	s.calls++
	s.block++
	if err := m.OpenToolUse(s.block, s.ids.Unique(call.ID), call.Name, args); err != nil {
		return err
	}
	return m.Close(s.block)
}

// apiError is the error document of the API, instead of a response or in the
// middle of one.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Reason string `json:"reason"`
	} `json:"details"`
}

// fault reads an error document.
func fault(status int, _ http.Header, body []byte) *converse.Fault {
	var said struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error == nil {
		return nil
	}
	return said.Error.fault(status)
}

// fault returns the API's message, with the class of the status.
func (e *apiError) fault(status int) *converse.Fault {
	for _, d := range e.Details {
		if d.Reason == "API_KEY_INVALID" {
			status = http.StatusUnauthorized // the API sends 400
		}
	}
	return &converse.Fault{Status: status, Title: e.Status, Message: e.Message}
}
