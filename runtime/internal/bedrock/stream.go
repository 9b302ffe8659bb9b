package bedrock

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// source implements [converse.Source].
type source struct {
	stream    *bedrockruntime.ConverseStreamEventStream
	requestID string
	stopped   bool // messageStop has come
	counted   bool // metadata has come, which is the last event

	// redacted are the bytes of blocks that are open, by their numbers.
	redacted map[int64][]byte
}

// Close implements [converse.Source].
func (s *source) Close() error { return s.stream.Close() }

// Read implements [converse.Source]. The SDK takes a frame that was cut for the end
// of the body, so that only the last event tells them apart.
func (s *source) Read(m *converse.Message) error {
	if ev, ok := <-s.stream.Events(); ok {
		return s.event(m, ev)
	}
	err := s.stream.Err()
	_, said := errors.AsType[smithy.APIError](err)
	switch {
	case s.stopped && s.counted: // what breaks now takes nothing away
		m.RequestID = s.requestID
		return io.EOF
	case err == nil:
		return fmt.Errorf("the response ended before its metadata: %w", io.ErrUnexpectedEOF)
	case said || provider.Transient(err):
		return err
	}
	wrong, _, _ := strings.Cut(err.Error(), ", got ") // what the SDK got may be what the model said
	return converse.Malformed("%s", wrong)
}

func (s *source) event(m *converse.Message, ev types.ConverseStreamOutput) error {
	if s.stopped && s.counted {
		return converse.Malformed("an event after the metadata")
	}
	switch ev := ev.(type) {
	case *types.ConverseStreamOutputMemberContentBlockStart:
		return start(m, ev.Value)
	case *types.ConverseStreamOutputMemberContentBlockDelta:
		return s.delta(m, ev.Value)
	case *types.ConverseStreamOutputMemberContentBlockStop:
		return s.stop(m, ev.Value)
	case *types.ConverseStreamOutputMemberMessageStop:
		s.stopped = true
		m.StopReason = string(ev.Value.StopReason)
	case *types.ConverseStreamOutputMemberMetadata:
		s.counted = true
		count(m, ev.Value.Usage)
	}
	return nil
}

// start opens a tool use. Blocks of text and of reasoning begin with their first
// delta.
func start(m *converse.Message, ev types.ContentBlockStartEvent) error {
	index, err := number(ev.ContentBlockIndex)
	if err != nil {
		return err
	}
	use, ok := ev.Start.(*types.ContentBlockStartMemberToolUse)
	if !ok {
		return unsupported(ev.Start)
	}
	return m.OpenToolUse(index, aws.ToString(use.Value.ToolUseId), aws.ToString(use.Value.Name), "")
}

func (s *source) delta(m *converse.Message, ev types.ContentBlockDeltaEvent) error {
	index, err := number(ev.ContentBlockIndex)
	if err != nil {
		return err
	}
	switch d := ev.Delta.(type) {
	case *types.ContentBlockDeltaMemberText:
		return m.Extend(index, provider.ChunkText, d.Value)
	case *types.ContentBlockDeltaMemberToolUse:
		return m.Delta(index, provider.ChunkToolUseStart, aws.ToString(d.Value.Input))
	case *types.ContentBlockDeltaMemberReasoningContent:
		return s.reasoning(m, index, d.Value)
	}
	return unsupported(ev.Delta)
}

func (s *source) reasoning(m *converse.Message, index int64, d types.ReasoningContentBlockDelta) error {
	switch d := d.(type) {
	case *types.ReasoningContentBlockDeltaMemberText:
		return m.Extend(index, provider.ChunkReasoning, d.Value)
	case *types.ReasoningContentBlockDeltaMemberSignature:
		if err := m.Extend(index, provider.ChunkReasoning, ""); err != nil {
			return err
		}
		return m.Sign(index, d.Value)
	case *types.ReasoningContentBlockDeltaMemberRedactedContent:
		if s.redacted == nil {
			s.redacted = map[int64][]byte{}
		}
		s.redacted[index] = append(s.redacted[index], d.Value...)
		return m.Extend(index, provider.ChunkRedactedThinking, "")
	}
	return unsupported(d)
}

// stop closes a block. A block of text that stays empty is closed without ever
// being there. Bytes are encoded as a whole, because the pieces of base64 do not
// join.
func (s *source) stop(m *converse.Message, ev types.ContentBlockStopEvent) error {
	index, err := number(ev.ContentBlockIndex)
	if err != nil || !m.IsOpen(index) {
		return err
	}
	if opaque, ok := s.redacted[index]; ok {
		delete(s.redacted, index)
		if err := m.Delta(index, provider.ChunkRedactedThinking, base64.StdEncoding.EncodeToString(opaque)); err != nil {
			return err
		}
	}
	return m.Close(index)
}

// count adds up what the API counts apart: input without what a cache had.
func count(m *converse.Message, u *types.TokenUsage) {
	if u == nil {
		return
	}
	read, create := int64(aws.ToInt32(u.CacheReadInputTokens)), int64(aws.ToInt32(u.CacheWriteInputTokens))
	m.Usage(provider.Usage{
		InputTokens:  int64(aws.ToInt32(u.InputTokens)) + read + create,
		OutputTokens: int64(aws.ToInt32(u.OutputTokens)), CacheReadTokens: read, CacheCreateTokens: create,
	})
}

func number(index *int32) (int64, error) {
	if index == nil {
		return 0, converse.Malformed("a block without an index")
	}
	return int64(*index), nil
}

func unsupported(content any) error {
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", content), "Member")
	return fmt.Errorf("a piece of the kind %q has no place in a Request, so it cannot be received", kind)
}

// statuses say the class of exceptions. They go before the status of a response:
// an exception in a stream has none, and some come with one, such as 424 when the
// model failed, that tells less than their name.
var statuses = map[string]int{
	"AccessDeniedException":         http.StatusForbidden,
	"InternalServerException":       http.StatusInternalServerError,
	"ModelErrorException":           http.StatusInternalServerError,
	"ModelNotReadyException":        http.StatusTooManyRequests,
	"ModelStreamErrorException":     http.StatusInternalServerError,
	"ModelTimeoutException":         http.StatusGatewayTimeout,
	"ServiceQuotaExceededException": http.StatusTooManyRequests,
	"ServiceUnavailableException":   http.StatusServiceUnavailable,
	"ThrottlingException":           http.StatusTooManyRequests,
	"ValidationException":           http.StatusBadRequest,
}

// nameless is what the SDK calls an exception that the response does not name.
const nameless = "UnknownError"

// explain gives an error its class and its words.
func explain(err error) error {
	status, text := 0, "bedrock: "+err.Error()
	response, answered := errors.AsType[*awshttp.ResponseError](err)
	if answered {
		status = response.HTTPStatusCode()
		text = fmt.Sprintf("bedrock: status %d: %v", status, response.Err)
	}
	if exception, ok := errors.AsType[smithy.APIError](err); ok && exception.ErrorCode() != nameless {
		code := upper(exception.ErrorCode())
		text = fmt.Sprintf("bedrock: %s: %s", code, exception.ErrorMessage())
		status = cmp.Or(statuses[code], status)
	}
	if answered && response.RequestID != "" {
		text += fmt.Sprintf(" (request %s)", response.RequestID)
	}
	return provider.WrapHTTPStatus(&converse.Error{Text: text, Err: err}, status)
}

// upper returns the code of an exception as it is called. In a stream those that
// the SDK does not expect begin with a small letter.
func upper(code string) string {
	if code == "" {
		return "exception"
	}
	return strings.ToUpper(code[:1]) + code[1:]
}
