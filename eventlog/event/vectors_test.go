package event_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/vectortest"
)

// eventLine is a line of event.jsonl and run.jsonl. Integers are text, because
// not every JSON library keeps 64-bit integers.
type eventLine struct {
	Name     string          `json:"name"`
	RunID    string          `json:"run_id"`
	Seq      uint64          `json:"seq,string"`
	TS       int64           `json:"ts,string"`
	Kind     uint8           `json:"kind"`
	KindName string          `json:"kind_name"`
	PrevHash string          `json:"prev_hash"` // hexadecimal, empty for null
	Payload  string          `json:"payload"`   // hexadecimal
	Rendered json.RawMessage `json:"payload_json"`
	Envelope string          `json:"envelope"` // hexadecimal
	Hash     string          `json:"hash"`
}

type eventCase struct {
	name    string
	payload event.Payload
}

const (
	runID  = "01JGQ4T0000000000000000000"
	callID = "01JGQ4T0000000000000000001"
	ts     = 1_735_689_600_123_456_789
)

func sum(s string) []byte {
	h := canon.Sum([]byte(s))
	return h[:]
}

// minimal is every kind with its zero values: the fields that are always encoded.
var minimal = []eventCase{
	{"RunStarted, least", event.RunStarted{SchemaVersion: 1, ToolSchemas: []event.ToolSchemaRef{}}},
	{"UserMessageAppended, least", event.UserMessageAppended{}},
	{"TurnStarted, least", event.TurnStarted{}},
	{"ReasoningEmitted, least", event.ReasoningEmitted{}},
	{"AssistantMessageCompleted, least", event.AssistantMessageCompleted{}},
	{"ToolCallScheduled, least", event.ToolCallScheduled{Attempt: 1}},
	{"ToolCallCompleted, least", event.ToolCallCompleted{Attempt: 1}},
	{"ToolCallFailed, least", event.ToolCallFailed{Attempt: 1}},
	{"SideEffectRecorded, least", event.SideEffectRecorded{}},
	{"BudgetExceeded, least", event.BudgetExceeded{}},
	{"ContextTruncated, reserved", event.ContextTruncated{}},
	{"RunCompleted, least", event.RunCompleted{MerkleRoot: sum("root")}},
	{"RunFailed, least", event.RunFailed{MerkleRoot: sum("root")}},
	{"RunCancelled, least", event.RunCancelled{MerkleRoot: sum("root")}},
	{"RunResumed, least", event.RunResumed{}},
	{"TurnFailed, reserved", event.TurnFailed{}},
}

// full is every kind with all its fields.
var full = []eventCase{
	{"RunStarted, all fields", event.RunStarted{
		SchemaVersion: 1, Goal: "greet", ProviderID: "openai", ModelID: "m-1", APIVersion: "v1",
		ParamsHash: sum("\xa1\x61t\xf9\x3c\x00"), Params: canon.Raw("\xa1\x61t\xf9\x3c\x00"),
		SystemPromptHash: sum("Be brief."), SystemPrompt: "Be brief.",
		ToolRegistryHash: event.RegistryHash(toolRefs), ToolSchemas: toolRefs,
		Budget:          &event.BudgetLimits{MaxInputTokens: 1000, MaxOutputTokens: 500, MaxUSD: 0.25, MaxWallClockMs: 60_000},
		StarlingVersion: "v1.2.3", AppVersion: "v0.1.0",
	}},
	{"RunStarted, in a session and with variables", event.RunStarted{
		SchemaVersion: 1, ToolSchemas: []event.ToolSchemaRef{}, SessionID: "s-1", Variables: canon.Raw("\xa1\x66tenant\x61a"),
	}},
	{"RunStarted, with its caller", event.RunStarted{
		SchemaVersion: 1, ToolSchemas: []event.ToolSchemaRef{}, Caller: &event.Caller{
			KeyID: "k7", Client: "claude-code", Version: "2.1", Session: "s-7", Issuer: "https://id.example.com", Subject: "ada", Actor: "assistant",
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Delegation: [][]byte{sum("mandate")},
		},
	}},
	{"RunStarted, a tool under the rules of version 1", event.RunStarted{
		SchemaVersion: 1, ToolSchemas: []event.ToolSchemaRef{{Name: "greet", SchemaHash: sum("{}"), Sandbox: &event.Sandbox{
			Module: sum("module"), ABI: "starling:v1", CostTable: 1, Limits: event.SandboxLimits{MemoryPages: 1}, Rules: event.RulesVersion,
		}}},
	}},
	{"UserMessageAppended, all fields", event.UserMessageAppended{Content: "und auf Zürichdeutsch?"}},
	{"TurnStarted, all fields", event.TurnStarted{TurnID: "t1", PromptHash: sum("prompt"), InputTokens: 42}},
	{"ReasoningEmitted, all fields", event.ReasoningEmitted{
		TurnID: "t1", Content: "hm", Sensitive: true, Signature: []byte{1, 2, 3}, Redacted: true,
	}},
	{"AssistantMessageCompleted, all fields", event.AssistantMessageCompleted{
		TurnID: "t1", Text: "Let me look.", StopReason: "tool_use",
		ToolUses:    []event.PlannedToolUse{{CallID: callID, ToolName: "greet", Args: canon.Raw("\xa1\x64name\x63Ada")}},
		InputTokens: 43, OutputTokens: 7, CacheReadTokens: 5, CacheCreateTokens: 3, CostUSD: 0.1,
		RawResponseHash: sum("response"), ProviderRequestID: "req_1",
	}},
	{"ToolCallScheduled, all fields", event.ToolCallScheduled{
		CallID: callID, TurnID: "t1", ToolName: "greet", Args: canon.Raw("\xa1\x64name\x63Ada"), Attempt: 2,
		IdempKey: "k", ParentID: "01JGQ4T0000000000000000002",
	}},
	{"ToolCallScheduled, with a commitment", event.ToolCallScheduled{CallID: callID, TurnID: "direct", ToolName: "greet", Args: canon.Raw("\xa0"), Attempt: 1, Commitment: []byte(`{"payloadType":""}`)}},
	{"ToolCallScheduled, with files", event.ToolCallScheduled{CallID: callID, TurnID: "direct", ToolName: "count", Args: canon.Raw("\xa0"), Attempt: 1, Workspace: &event.Workspace{
		Root: sum("tree"), Mounts: []event.Mount{{At: "/data"}, {At: "/workspace", Writable: true}},
	}}},
	{"ToolCallCompleted, with files", event.ToolCallCompleted{
		CallID: callID, Result: canon.Raw("\x01"), DurationMs: 12, Attempt: 1, Meter: event.Meter{Fuel: 9, Workspace: sum("tree")},
	}},
	{"ToolCallCompleted, all fields", event.ToolCallCompleted{
		CallID: callID, Result: canon.Raw("\x6aHello, Ada"), DurationMs: 12, Attempt: 2, Meter: meter,
	}},
	{"ToolCallFailed, all fields", event.ToolCallFailed{
		CallID: callID, Error: "out of fuel", ErrorType: event.ErrorFuel, DurationMs: 12, Attempt: 2, Final: true, Meter: meter,
	}},
	{"SideEffectRecorded, all fields", event.SideEffectRecorded{
		Name: "GET https://example.com/", CallID: callID, Request: []byte("GET https://example.com/ HTTP/1.1\r\n\r\n"),
		Error: &event.EffectError{Type: event.ErrorTimeout, Message: "the exchange took too long"}, Fuel: 1 << 40, DurationUs: 1_500_250,
	}},
	{"SideEffectRecorded, a snooze", event.SideEffectRecorded{
		Name: "ask", CallID: callID, Error: &event.EffectError{Type: "snooze", Message: "too many requests", RetryAfterMs: 30_000},
	}},
	{"BudgetExceeded, all fields", event.BudgetExceeded{
		Limit: "usd", Cap: 0.25, Actual: 0.5, Where: "mid_stream", TurnID: "t1", CallID: callID, PartialText: "Let", PartialTokens: 1,
	}},
	{"RunCompleted, all fields", event.RunCompleted{
		FinalText: `{"greeting":"Hello, Ada"}`, TurnCount: 2, ToolCallCount: 1, TotalCostUSD: 0.125,
		TotalInputTokens: 86, TotalOutputTokens: 14, DurationMs: 1500, MerkleRoot: sum("root"),
	}},
	{"RunFailed, all fields", event.RunFailed{
		Error: "gave up", ErrorType: "max_turns", MerkleRoot: sum("root"), DurationMs: 1500,
	}},
	{"RunCancelled, all fields", event.RunCancelled{Reason: "context canceled", MerkleRoot: sum("root"), DurationMs: 1500}},
	{"RunResumed, all fields", event.RunResumed{AtSeq: 7, ExtraMessage: "go on", ReissueTools: true, PendingCalls: 2}},
}

var meter = event.Meter{Fuel: 123_456_789, PeakMemory: 2 << 16, Log: "line 1\nline 2\n"}

var toolRefs = []event.ToolSchemaRef{
	{Name: "fetch", SchemaHash: sum(`{"type":"object"}`)},
	{
		Name: "greet", SchemaHash: sum(`{"type":"object"}`), DescriptionHash: sum("Greets."),
		Sandbox: &event.Sandbox{
			Module: sum("module"), ABI: "starling:v1", CostTable: 1,
			Limits: event.SandboxLimits{
				Fuel: 20_000_000_000, MemoryPages: 1024, Depth: 100_000, TimeoutMs: 300_000, InputBytes: 1 << 20,
				OutputBytes: 1 << 20, LogBytes: 1 << 16, Effects: 1000, EffectBytes: 8 << 20,
			},
			Allow: []string{"example.com:443"},
		},
	},
}

// edges are values at the borders of an encoding.
var edges = []eventCase{
	{"effect now", event.SideEffectRecorded{Name: event.EffectNow, Value: canon.AppendInt(nil, ts), CallID: callID, Fuel: 23}},
	{"effect now, before 1970", event.SideEffectRecorded{Name: event.EffectNow, Value: canon.AppendInt(nil, -1)}},
	{"effect rand, beyond a signed integer", event.SideEffectRecorded{Name: event.EffectRandom, Value: canon.AppendUint(nil, math.MaxUint64)}},
	{"effect seed", event.SideEffectRecorded{Name: event.EffectSeed, Value: canon.AppendBytes(nil, sum("seed"))}},
	{"effect intent", event.SideEffectRecorded{Name: event.EffectIntent, CallID: callID,
		Value: canon.Raw("\xa2\x63key\x78\x20" + "0123456789abcdef0123456789abcdef" + "\x64name\x64POST")}},
	{"value is the float 1.0", event.SideEffectRecorded{Name: "f", Value: canon.Raw("\xf9\x3c\x00")}},
	{"value is the float 0.1", event.SideEffectRecorded{Name: "f", Value: canon.Raw("\xfb\x3f\xb9\x99\x99\x99\x99\x99\x9a")}},
	{"value is not a number", event.SideEffectRecorded{Name: "f", Value: canon.Raw("\xf9\x7e\x00")}},
	{"value is a big integer", event.SideEffectRecorded{Name: "n", Value: canon.Raw("\xc2\x49\x01\x00\x00\x00\x00\x00\x00\x00\x00")}},
	{"cap is not a number, actual is infinite", event.BudgetExceeded{Limit: "usd", Cap: math.NaN(), Actual: math.Inf(1), Where: "pre_call"}},
	{"text with every width of UTF-8", event.UserMessageAppended{Content: "a\u00e9\u6c34\U0001f600\x00\u007f\u2028"}},
	{"text of 23 bytes", event.UserMessageAppended{Content: strings.Repeat("x", 23)}},
	{"text of 24 bytes", event.UserMessageAppended{Content: strings.Repeat("x", 24)}},
	{"text of 256 bytes", event.UserMessageAppended{Content: strings.Repeat("x", 256)}},
	{"reserved kind with fields", event.TurnFailed{"turn_id": canon.AppendText(nil, "t1")}},
	{"arguments as deep as JSON may be", event.ToolCallScheduled{CallID: callID, ToolName: "deep", Attempt: 1,
		Args: append(bytes.Repeat([]byte{0x81}, canon.MaxDepth-1), 0x80)}},
}

// envelopes are events whose envelope is at a border.
var envelopes = []struct {
	name  string
	event event.Event
}{
	{"seq 23", event.Event{RunID: runID, Seq: 23, PrevHash: sum("before"), Timestamp: 23}},
	{"seq 24", event.Event{RunID: runID, Seq: 24, PrevHash: sum("before"), Timestamp: 24}},
	{"seq 256", event.Event{RunID: runID, Seq: 256, PrevHash: sum("before"), Timestamp: -24}},
	{"seq 65536", event.Event{RunID: runID, Seq: 1 << 16, PrevHash: sum("before"), Timestamp: -25}},
	{"seq 2^32", event.Event{RunID: runID, Seq: 1 << 32, PrevHash: sum("before"), Timestamp: math.MaxInt64}},
	{"seq 2^64-1", event.Event{RunID: runID, Seq: math.MaxUint64, PrevHash: sum("before"), Timestamp: math.MinInt64}},
	{"an empty run id", event.Event{Seq: 1}},
	{"a run id with a namespace", event.Event{RunID: "tenant-ü/" + runID, Seq: 1}},
	{"a kind that is not known", event.Event{RunID: runID, Seq: 2, Kind: 24, PrevHash: sum("before")}},
}

func encode(t *testing.T, p event.Payload) canon.Raw {
	t.Helper()
	raw, err := event.EncodePayload(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func lineOf(t *testing.T, name string, e event.Event) eventLine {
	t.Helper()
	envelope, err := event.Marshal(e)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	shown, err := canon.Render(e.Payload)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return eventLine{
		Name: name, RunID: e.RunID, Seq: e.Seq, TS: e.Timestamp, Kind: uint8(e.Kind), KindName: e.Kind.String(),
		PrevHash: hex.EncodeToString(e.PrevHash), Payload: hex.EncodeToString(e.Payload), Rendered: shown,
		Envelope: hex.EncodeToString(envelope), Hash: event.Hash(envelope).String(),
	}
}

func TestVectorsEvents(t *testing.T) {
	var lines []eventLine
	for _, cases := range [][]eventCase{minimal, full, edges} {
		for _, c := range cases {
			e := event.Event{RunID: runID, Seq: 2, PrevHash: sum("before"), Timestamp: ts, Kind: c.payload.EventKind(), Payload: encode(t, c.payload)}
			if e.Kind == event.KindRunStarted {
				e.Seq, e.PrevHash = 1, nil
			}
			lines = append(lines, lineOf(t, c.name, e))
		}
	}
	for _, c := range envelopes {
		if c.event.Kind == 0 {
			c.event.Kind = event.KindUserMessageAppended
		}
		c.event.Payload = encode(t, event.UserMessageAppended{Content: "x"})
		lines = append(lines, lineOf(t, c.name, c.event))
	}
	for _, line := range vectortest.Check(t, "event.jsonl", lines) {
		t.Run(line.Name, func(t *testing.T) { checkLine(t, line) })
	}
}

// checkLine checks the laws of every line of event.jsonl and run.jsonl.
func checkLine(t *testing.T, line eventLine) event.Event {
	envelope, err := hex.DecodeString(line.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	e, err := event.Unmarshal(envelope)
	if err != nil {
		t.Fatal(err)
	}
	got, want := lineOf(t, line.Name, e), line
	if !bytes.Equal(got.Rendered, want.Rendered) {
		t.Errorf("payload_json %s, want %s", got.Rendered, want.Rendered)
	}
	got.Rendered, want.Rendered = nil, nil
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("decoded and encoded again:\n%s\nwant\n%s", a, b)
	}
	if again, err := reencode(e); err != nil || !bytes.Equal(again, e.Payload) {
		t.Errorf("payload %x, %v, want %x", again, err, e.Payload)
	}
	return e
}

// directRun is a whole run: one call of one tool that reads the clock.
func directRun(t *testing.T) []event.Event {
	refs := toolRefs[1:]
	payloads := []event.Payload{
		event.RunStarted{SchemaVersion: 1, Goal: "greet", ToolSchemas: refs, ToolRegistryHash: event.RegistryHash(refs), StarlingVersion: "v1.2.3"},
		event.ToolCallScheduled{CallID: callID, TurnID: "direct", ToolName: "greet", Args: canon.Raw("\xa1\x64name\x63Ada"), Attempt: 1},
		event.SideEffectRecorded{Name: event.EffectNow, Value: canon.AppendInt(nil, ts), CallID: callID, Fuel: 1234},
		event.ToolCallCompleted{CallID: callID, Result: canon.Raw("\x6aHello, Ada"), DurationMs: 3, Attempt: 1, Meter: meter},
		event.RunCompleted{FinalText: `"Hello, Ada"`, ToolCallCount: 1, DurationMs: 4},
	}
	var run []event.Event
	var tree canon.Tree
	for i, p := range payloads {
		e := event.Event{RunID: runID, Seq: uint64(i + 1), Timestamp: ts + int64(i)*1_000_000}
		if i > 0 {
			last := run[i-1].Hash()
			tree.Add(last)
			e.PrevHash = last[:]
		}
		if end, ok := p.(event.RunCompleted); ok {
			root := tree.Root()
			end.MerkleRoot = root[:]
			p = end
		}
		e.Kind, e.Payload = p.EventKind(), encode(t, p)
		run = append(run, e)
	}
	return run
}

func TestVectorsRun(t *testing.T) {
	var lines []eventLine
	for _, e := range directRun(t) {
		lines = append(lines, lineOf(t, e.Kind.String(), e))
	}
	var tree canon.Tree
	var prev []byte
	for _, line := range vectortest.Check(t, "run.jsonl", lines) {
		e := checkLine(t, line)
		if !bytes.Equal(e.PrevHash, prev) {
			t.Errorf("seq %d: prev_hash %x, want %x", e.Seq, e.PrevHash, prev)
		}
		if root := tree.Root(); e.Kind.Terminal() && !bytes.Equal(merkleRoot(t, e), root[:]) {
			t.Errorf("seq %d: merkle_root %x, want %s", e.Seq, merkleRoot(t, e), root)
		}
		h := e.Hash()
		tree.Add(h)
		prev = h[:]
	}
}

// good is an envelope that the refused ones differ from in one thing.
const good = "a6" + tsKey + "00" + seqKey + "01" + kindKey + "02" + runKey + "6172" + payloadKey + "a0" + prevKey + "f6"

const (
	tsKey      = "627473"
	seqKey     = "63736571"
	kindKey    = "646b696e64"
	runKey     = "6672756e5f6964"
	payloadKey = "677061796c6f6164"
	prevKey    = "69707265765f68617368"
)

var refusedEnvelopes = []struct{ name, old, new string }{
	{"nothing", good, ""},
	{"an array", good, "80"},
	{"a byte more", good, good + "00"},
	{"a byte less", prevKey + "f6", prevKey},
	{"a tag around it", "a6" + tsKey, "d9d9f7a6" + tsKey},
	{"five keys", "a6" + tsKey + "00", "a5"},
	{"seven keys", "a6" + tsKey, "a7" + "6161" + "00" + tsKey},
	{"another key instead of ts", tsKey, "627478"},
	{"a key in capitals", kindKey, "644b494e44"},
	{"a key twice", seqKey + "01", tsKey + "00"},
	{"keys in another order", tsKey + "00" + seqKey + "01", seqKey + "01" + tsKey + "00"},
	{"a map of indefinite length", good, "bf" + good[2:] + "ff"},
	{"seq in two bytes", seqKey + "01", seqKey + "1801"},
	{"seq is negative", seqKey + "01", seqKey + "20"},
	{"seq is a float", seqKey + "01", seqKey + "f93c00"},
	{"seq is null", seqKey + "01", seqKey + "f6"},
	{"seq is a big integer", seqKey + "01", seqKey + "c249010000000000000000"},
	{"ts does not fit 63 bits", tsKey + "00", tsKey + "1b8000000000000000"},
	{"ts is below 63 bits", tsKey + "00", tsKey + "3b8000000000000000"},
	{"ts is text", tsKey + "00", tsKey + "6130"},
	{"kind is 256", kindKey + "02", kindKey + "190100"},
	{"kind is text", kindKey + "02", kindKey + "6132"},
	{"run id is bytes", runKey + "6172", runKey + "4172"},
	{"run id is null", runKey + "6172", runKey + "f6"},
	{"run id is not UTF-8", runKey + "6172", runKey + "61ff"},
	{"prev_hash is empty", prevKey + "f6", prevKey + "40"},
	{"prev_hash has 31 bytes", prevKey + "f6", prevKey + "581f" + strings.Repeat("00", 31)},
	{"prev_hash has 33 bytes", prevKey + "f6", prevKey + "5821" + strings.Repeat("00", 33)},
	{"prev_hash is text", prevKey + "f6", prevKey + "7820" + strings.Repeat("61", 32)},
	{"prev_hash is an array", prevKey + "f6", prevKey + "9820" + strings.Repeat("01", 32)},
	{"prev_hash is undefined", prevKey + "f6", prevKey + "f7"},
	{"payload has an integer that is too long", payloadKey + "a0", payloadKey + "a161611800"},
	{"payload has its keys out of order", payloadKey + "a0", payloadKey + "a2616200616100"},
	{"payload has a key twice", payloadKey + "a0", payloadKey + "a2616100616100"},
	{"payload has text that is not UTF-8", payloadKey + "a0", payloadKey + "a1616161ff"},
	{"payload nests too deep", payloadKey + "a0", payloadKey + strings.Repeat("81", canon.MaxNesting-1) + "80"},
}

type refusedLine struct {
	Name     string `json:"name"`
	Envelope string `json:"envelope"`
}

func TestVectorsEventsRefused(t *testing.T) {
	if _, err := event.Unmarshal(mustHex(t, good)); err != nil {
		t.Fatal(err)
	}
	var lines []refusedLine
	for _, c := range refusedEnvelopes {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s: nothing to replace", c.name)
		}
		envelope := strings.Replace(good, c.old, c.new, 1)
		e, err := event.Unmarshal(mustHex(t, envelope))
		if err == nil {
			t.Fatalf("%s: accepted as %+v", c.name, e)
		}
		lines = append(lines, refusedLine{c.name, envelope})
	}
	vectortest.Check(t, "event-refused.jsonl", lines)
}

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
