package event

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
)

// Describe returns the essence of an event on one line. The text comes from the
// event and may be hostile and long: the caller escapes and cuts it. An error means
// that the payload does not fit its kind.
func Describe(ev Event) (string, error) {
	if describe, ok := descriptions[ev.Kind]; ok {
		return describe(ev)
	}
	return rendered(ev.Payload), canon.Valid(ev.Payload)
}

// descriptions describe the events of a kind.
var descriptions = map[Kind]func(Event) (string, error){
	KindRunStarted:                facts(summarizeStart),
	KindUserMessageAppended:       facts(func(p UserMessageAppended) string { return p.Content }),
	KindTurnStarted:               facts(func(p TurnStarted) string { return "turn " + p.TurnID }),
	KindReasoningEmitted:          facts(func(p ReasoningEmitted) string { return p.Content }),
	KindAssistantMessageCompleted: facts(summarizeAnswer),
	KindToolCallScheduled: facts(func(p ToolCallScheduled) string {
		text := fmt.Sprintf("%s %s", p.ToolName, rendered(p.Args))
		if p.Attempt > 1 {
			text = fmt.Sprintf("attempt %d: %s", p.Attempt, text)
		}
		return text
	}),
	KindToolCallCompleted: facts(func(p ToolCallCompleted) string { return summarizeMeter(p.Meter) + rendered(p.Result) }),
	KindToolCallFailed: facts(func(p ToolCallFailed) string {
		return fmt.Sprintf("%s%s: %s", summarizeMeter(p.Meter), p.ErrorType, p.Error)
	}),
	KindSideEffectRecorded: facts(summarizeEffect),
	KindBudgetExceeded: facts(func(p BudgetExceeded) string {
		return p.Describe() + ", " + strings.ReplaceAll(p.Where, "_", " ")
	}),
	KindRunCompleted: facts(func(p RunCompleted) string { return p.FinalText }),
	KindRunFailed:    facts(func(p RunFailed) string { return p.ErrorType + ": " + p.Error }),
	KindRunCancelled: facts(func(p RunCancelled) string { return p.Reason }),
	KindRunResumed:   facts(func(p RunResumed) string { return fmt.Sprintf("after event %d", p.AtSeq) }),
}

// Line is [Describe] as printable text, cut to the given number of characters.
func Line(ev Event, most int) string {
	text, err := Describe(ev)
	if err != nil {
		text = "cannot be read: " + err.Error()
	}
	return display.Shorten(display.Printable(text[:min(len(text), 4*most)]), most)
}

// facts returns a function that describes the payload of an event.
func facts[P Payload](describe func(P) string) func(Event) (string, error) {
	return func(ev Event) (string, error) {
		p, err := Decode[P](ev)
		switch {
		case errors.Is(err, ErrEncrypted):
			return "the payload is encrypted; the data key decrypts it", nil
		case err != nil:
			return "", err
		}
		return describe(p), nil
	}
}

// rendered returns a CBOR value as JSON for reading.
func rendered(raw canon.Raw) string {
	doc, err := canon.Render(raw)
	if err != nil {
		return "cannot be read"
	}
	return string(doc)
}

func summarizeStart(p RunStarted) string {
	parts := []string{p.Goal}
	if p.ModelID != "" {
		parts = append(parts, p.ProviderID+"/"+p.ModelID)
	}
	for _, ref := range p.ToolSchemas {
		parts = append(parts, summarizeTool(ref, len(p.ToolSchemas) == 1 && p.ModelID == ""))
	}
	return strings.Join(parts, "; ")
}

// summarizeTool names a tool, unless it is the only one, which the goal names.
func summarizeTool(ref ToolSchemaRef, only bool) string {
	switch {
	case ref.Sandbox == nil && ref.Source != "":
		return "tool " + ref.Name + " (" + ref.Source + ")"
	case ref.Sandbox == nil:
		return "tool " + ref.Name
	case only:
		return summarizeSandbox(*ref.Sandbox)
	}
	return "tool " + ref.Name + ": " + summarizeSandbox(*ref.Sandbox)
}

func summarizeSandbox(s Sandbox) string {
	text := fmt.Sprintf("module %s, %s, fuel %s, memory %s, timeout %s", shortHash(s.Module), s.ABI, display.Fuel(s.Limits.Fuel),
		display.Size(uint64(s.Limits.MemoryPages)<<16), time.Duration(s.Limits.TimeoutMs)*time.Millisecond)
	if len(s.Allow) > 0 {
		text += ", may reach " + strings.Join(s.Allow, " ")
	}
	if s.Policy != nil && len(s.Policy.Operator) > 0 {
		text += ", operator's policy " + shortHash(s.Policy.Operator)
	}
	if s.Policy != nil && len(s.Policy.Tenant) > 0 {
		text += ", tenant's policy " + shortHash(s.Policy.Tenant)
	}
	return text
}

// shortHash is enough of a digest to recognize it.
func shortHash(digest []byte) string { return hex.EncodeToString(digest[:min(len(digest), 8)]) }

func summarizeAnswer(p AssistantMessageCompleted) string {
	text := fmt.Sprintf("%d tokens in, %d out", p.InputTokens, p.OutputTokens)
	for _, use := range p.ToolUses {
		text += fmt.Sprintf("; calls %s %s", use.ToolName, rendered(use.Args))
	}
	if !slices.Contains(usualStops, p.StopReason) {
		text += "; stopped by " + p.StopReason
	}
	return text + "; " + p.Text
}

// usualStops are the stop reasons of complete answers, in the words of all providers.
// Any other, such as length or content_filter, explains why the answer is incomplete.
var usualStops = []string{"", "end_turn", "stop", "STOP", "stop_sequence", "tool_use", "tool_calls", "function_call"}

// summarizeMeter begins the line of an outcome, if the tool was metered.
func summarizeMeter(m Meter) string {
	if m.Fuel == 0 {
		return ""
	}
	return fmt.Sprintf("fuel %s, memory %s; ", display.Digits(m.Fuel), display.Size(m.PeakMemory))
}

func summarizeEffect(p SideEffectRecorded) string {
	switch {
	case p.Error != nil:
		return fmt.Sprintf("%s failed: %s: %s", p.Name, p.Error.Type, p.Error.Message)
	case IsHTTP(p.Request):
		return summarizeHTTP(p)
	case len(p.Request) == 0 && strings.HasPrefix(p.Name, NestedCallPrefix):
		var nested NestedCall
		if canon.Unmarshal(p.Value, &nested) == nil {
			return fmt.Sprintf("called %s, as call %s", strings.TrimPrefix(p.Name, NestedCallPrefix), nested.CallID)
		}
	case len(p.Request) > 0:
		return fmt.Sprintf("%s %q = %s", p.Name, p.Request, rendered(p.Value))
	}
	if describe, ok := effectSummaries[p.Name]; ok {
		return describe(p.Value)
	}
	return p.Name + " = " + rendered(p.Value)
}

func summarizeHTTP(p SideEffectRecorded) string {
	text := DescribeRequest(p.Request)
	if p.Name != text { // the tool gave the request a name
		text = p.Name + ": " + text
	}
	var v Exchange
	if canon.Unmarshal(p.Value, &v) != nil {
		return text + " -> " + rendered(p.Value)
	}
	if v.Status != 0 {
		return fmt.Sprintf("%s -> %s: %s", text, v.Status, v.Text)
	}
	line, _, _ := strings.Cut(string(v.Response), "\r\n")
	return fmt.Sprintf("%s -> %s, %s", text, strings.TrimPrefix(line, "HTTP/1.1 "), display.Size(uint64(len(v.Response))))
}

// effectSummaries describe the values of the runtime's own effects.
var effectSummaries = map[string]func(canon.Raw) string{
	EffectNow: summary("now", func(ns int64) string {
		return "now = " + time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
	}),
	EffectRandom: func(v canon.Raw) string { return "random = " + rendered(v) },
	EffectModel: summary("model", func(f ModelFailure) string {
		text := fmt.Sprintf("the model did not answer, attempt %d: %s: %s", f.Attempt, f.Class, f.Error)
		if !f.Final {
			text += fmt.Sprintf("; again in %s", time.Duration(f.WaitMs)*time.Millisecond)
		}
		return text
	}),
	EffectPolicy: summary("policy", func(v Verdicts) string {
		allowed := "the call is allowed"
		if slices.ContainsFunc(v, func(one Verdict) bool { return one.Answer != "" }) {
			allowed += ", as the user confirmed"
		}
		return "policy: " + cmp.Or(v.Reason(), allowed)
	}),
	EffectIntent: summary("intent", func(i Intent) string {
		return fmt.Sprintf("about to %s, idempotency key %s", i.Name, i.Key)
	}),
}

// summary describes a value; a value that is not a T it shows as it is.
func summary[T any](name string, describe func(T) string) func(canon.Raw) string {
	return func(v canon.Raw) string {
		var value T
		if canon.Unmarshal(v, &value) != nil {
			return name + " = " + rendered(v)
		}
		return describe(value)
	}
}

// Short returns the name of a kind, the three longest shortened, which would make a
// column twice as wide as it has to be.
func (k Kind) Short() string {
	switch k {
	case KindUserMessageAppended:
		return "UserMessage"
	case KindAssistantMessageCompleted:
		return "AssistantMessage"
	case KindSideEffectRecorded:
		return "SideEffect"
	}
	return k.String()
}

// Family groups kinds: "run", "model", "tool" and "effect", and "bad" for failures,
// cancellations, caps, and unknown kinds.
func (k Kind) Family() string {
	switch k {
	case KindRunStarted, KindRunCompleted, KindRunResumed, KindUserMessageAppended:
		return "run"
	case KindTurnStarted, KindReasoningEmitted, KindAssistantMessageCompleted, KindContextTruncated:
		return "model"
	case KindToolCallScheduled, KindToolCallCompleted:
		return "tool"
	case KindSideEffectRecorded:
		return "effect"
	}
	return "bad"
}

// DescribeRequest returns the request line of a message/http request without its protocol
// version: "GET http://host/path".
func DescribeRequest(request []byte) string {
	line, _, _ := bytes.Cut(request, []byte("\r\n"))
	return string(bytes.TrimSuffix(line, []byte(" HTTP/1.1"))) // keeps no more of a large request
}

// IsHTTP reports whether the request of an effect is an HTTP request.
func IsHTTP(request []byte) bool {
	line, _, ok := bytes.Cut(request, []byte("\r\n"))
	return ok && bytes.HasSuffix(line, []byte(" HTTP/1.1"))
}

// Describe writes which bound of a run's budget was passed, and by how much, such as
// "output_tokens, 12 of 10".
func (p BudgetExceeded) Describe() string {
	amount := func(n float64) string {
		if whole := uint64(n); n >= 0 && float64(whole) == n {
			return display.Digits(whole)
		}
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprintf("%s, %s of %s", p.Limit, amount(p.Actual), amount(p.Cap))
}

// Indented is a payload as printable JSON for reading.
func Indented(payload canon.Raw) string {
	doc, err := canon.Render(payload)
	if err != nil {
		return "cannot be shown: " + display.PrintableError(err)
	}
	doc = display.PrintableJSON(doc)
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// Text is a text of a payload, with its place, such as "args.code".
type Text struct {
	Path string `json:"path"`
	Text string `json:"text"` // printable lines
}

// Bounds of the long texts that are shown beside a payload.
const (
	maxTexts  = 40
	longText  = 200 // characters without a line break that make a text long
	mostShown = 64 << 10
)

// LongTexts returns the texts of a payload that JSON shows on one line although they
// have several, such as a model's answer or an HTTP message.
func LongTexts(payload canon.Raw) []Text {
	doc, err := canon.Render(payload)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	var found []Text
	collectTexts(v, "", &found)
	return found
}

func collectTexts(v any, path string, found *[]Text) {
	if len(*found) >= maxTexts {
		return
	}
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\n") || utf8.RuneCountInString(v) > longText {
			if len(v) > mostShown {
				v = v[:mostShown] + "\n..."
			}
			*found = append(*found, Text{path, display.PrintableText(strings.TrimRight(v, "\r\n"))})
		}
	case []any:
		for i, element := range v {
			collectTexts(element, fmt.Sprintf("%s[%d]", path, i), found)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := strings.TrimPrefix(path+"."+display.Printable(name), ".")
			if name == "$text" && len(v) == 1 {
				inner = path // a byte string that is text
			}
			collectTexts(v[name], inner, found)
		}
	}
}
