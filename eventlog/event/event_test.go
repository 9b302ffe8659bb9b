package event_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// drawEvent draws an event that Marshal accepts.
func drawEvent(t *rapid.T) event.Event {
	payload, err := canon.FromJSON([]byte(rapid.SampledFrom([]string{
		`null`, `{}`, `{"content":"x"}`, `[1,2.5,"three"]`, `123456789012345678901234567890`,
	}).Draw(t, "payload")))
	if err != nil {
		t.Fatal(err)
	}
	e := event.Event{
		RunID: strings.ToValidUTF8(rapid.String().Draw(t, "run id"), "?"), Seq: rapid.Uint64().Draw(t, "seq"),
		Timestamp: rapid.Int64().Draw(t, "ts"), Kind: event.Kind(rapid.Uint8().Draw(t, "kind")), Payload: payload,
	}
	if rapid.Bool().Draw(t, "linked") {
		e.PrevHash = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "prev_hash")
	}
	return e
}

// The hand-written envelope is held against the codec.
func TestEnvelopeLikeTheCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		want, err := canon.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := event.Marshal(e)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%+v\ngot  %x, %v\nwant %x", e, got, err, want)
		}
		if event.Hash(got) != e.Hash() {
			t.Fatal("the hash of the event is not the hash of its envelope")
		}
		back, err := event.Unmarshal(got)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("%+v, %v\nwant %+v", back, err, e)
		}
	})
}

func TestMarshalRefusesWhatUnmarshalWould(t *testing.T) {
	ok := event.Event{RunID: "r", Seq: 1, Kind: event.KindUserMessageAppended, Payload: canon.Raw{0xa0}}
	for _, c := range []struct {
		name   string
		change func(e *event.Event)
	}{
		{"a short prev_hash", func(e *event.Event) { e.PrevHash = make([]byte, 31) }},
		{"a long prev_hash", func(e *event.Event) { e.PrevHash = make([]byte, 33) }},
		{"a run id that is not UTF-8", func(e *event.Event) { e.RunID = "\xff" }},
		{"a payload that is not canonical", func(e *event.Event) { e.Payload = canon.Raw{0x18, 0x01} }},
		{"a payload of two items", func(e *event.Event) { e.Payload = canon.Raw{0xa0, 0xa0} }},
		{"a payload that hides the prev_hash", func(e *event.Event) {
			e.Payload = append(canon.Raw{0xa0}, "\x69prev_hash\xf6"...)
		}},
	} {
		e := ok
		c.change(&e)
		if b, err := event.Marshal(e); err == nil {
			t.Errorf("%s: %x", c.name, b)
		}
		if _, err := event.ToJSON(e); err == nil {
			t.Errorf("%s: ToJSON accepts it", c.name)
		}
	}
	if _, err := event.Marshal(ok); err != nil {
		t.Error(err)
	}
}

func TestEmptyPrevHashAndPayloadAreNull(t *testing.T) {
	a := event.Event{RunID: "r", Seq: 1, Kind: 2}
	b := a
	b.PrevHash, b.Payload = []byte{}, canon.Raw{}
	if x, y := event.AppendEnvelope(nil, a), event.AppendEnvelope(nil, b); !bytes.Equal(x, y) {
		t.Errorf("nil %x, empty %x", x, y)
	}
	if got := event.AppendEnvelope([]byte("dst"), a); !bytes.HasPrefix(got, []byte("dst\xa6")) {
		t.Errorf("not appended: %x", got)
	}
}

// The limits of a document, a payload and an envelope must fit together: the
// largest values that canon accepts are recorded and read back, in the place
// that nests deepest.
func TestLargestValuesFitAnEvent(t *testing.T) {
	deep := strings.Repeat("[", canon.MaxDepth) + strings.Repeat("]", canon.MaxDepth)
	big := strings.Repeat("[", canon.MaxDepth) + strings.Repeat("9", canon.MaxDigits) + strings.Repeat("]", canon.MaxDepth)
	wide := "[" + strings.Repeat("null,", 200_000) + "null]"
	var members strings.Builder
	for i := range 200_000 {
		members.WriteString(`"` + hex.EncodeToString([]byte{byte(i >> 16), byte(i >> 8), byte(i)}) + `":0,`)
	}
	for _, c := range []struct{ name, doc string }{
		{"64 levels", deep},
		{"a big integer below 64 levels", big},
		{"200001 elements", wide},
		{"200001 members", "{" + members.String() + `"":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args, err := canon.FromJSON([]byte(c.doc))
			if err != nil {
				t.Fatal(err)
			}
			checkFits(t, args)
		})
	}
}

func checkFits(t *testing.T, args canon.Raw) {
	payload := encode(t, event.AssistantMessageCompleted{ToolUses: []event.PlannedToolUse{{CallID: "c", ToolName: "t", Args: args}}})
	envelope, err := event.Marshal(event.Event{RunID: "r", Seq: 2, Kind: event.KindAssistantMessageCompleted, Payload: payload, PrevHash: sum("")})
	if err != nil {
		t.Fatal(err)
	}
	e, err := event.Unmarshal(envelope)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.AsAssistantMessageCompleted()
	if err != nil || !bytes.Equal(p.ToolUses[0].Args, args) {
		t.Fatalf("the arguments did not come back: %v", err)
	}
	if _, err := canon.ToJSON(p.ToolUses[0].Args); err != nil {
		t.Error(err)
	}
	if line, err := event.ToJSON(e); err != nil || !json.Valid(line) {
		t.Errorf("ToJSON: %v", err)
	}
}

func TestPayloadMustLeaveRoomForTheEnvelope(t *testing.T) {
	for _, c := range []struct {
		depth int
		ok    bool
	}{{canon.MaxNesting - 2, true}, {canon.MaxNesting - 1, false}} {
		value := append(bytes.Repeat([]byte{0x81}, c.depth), 0x00)
		payload, err := event.EncodePayload(event.SideEffectRecorded{Name: "deep", Value: value})
		if (err == nil) != c.ok {
			t.Fatalf("depth %d: %v", c.depth, err)
		}
		if err != nil {
			continue
		}
		if _, err := event.Marshal(event.Event{RunID: "r", Seq: 2, Kind: event.KindSideEffectRecorded, Payload: payload}); err != nil {
			t.Errorf("depth %d fits a payload but no envelope: %v", c.depth, err)
		}
	}
}

func TestEncodePayloadRefusesTextThatIsNotUTF8(t *testing.T) {
	if raw, err := event.EncodePayload(event.RunStarted{Goal: "\xff"}); err == nil {
		t.Errorf("%x", raw)
	}
}

func TestDecodeWantsTheKind(t *testing.T) {
	e := event.Event{RunID: "r", Seq: 3, Kind: event.KindRunFailed, Payload: encode(t, event.RunFailed{Error: "x"})}
	if p, err := e.AsRunFailed(); err != nil || p.Error != "x" {
		t.Errorf("%+v, %v", p, err)
	}
	_, err := e.AsRunCompleted()
	if err == nil || err.Error() != `event: seq 3 of run "r" is RunFailed, not RunCompleted` {
		t.Error(err)
	}
	for name, payload := range map[string]canon.Raw{
		"a number in place of text": canon.Raw("\xa1\x65error\x01"),
		"null":                      {0xf6},
		"undefined":                 {0xf7},
		"an array":                  {0x80},
		"a tagged map":              {0xd8, 0x20, 0xa0},
		"nothing":                   nil,
		"a key twice":               canon.Raw("\xa2\x65error\x61a\x65error\x61b"),
	} {
		e.Payload = payload
		if p, err := e.AsRunFailed(); err == nil {
			t.Errorf("%s was taken for a payload: %+v", name, p)
		}
	}
}

// Each accessor must belong to its kind, and each kind to one payload.
func TestEveryKindHasItsAccessor(t *testing.T) {
	for k := event.KindRunStarted; k.Valid(); k++ {
		e := event.Event{RunID: "r", Seq: 1, Kind: k, Payload: canon.Raw{0xa0}}
		for other := event.KindRunStarted; other.Valid(); other++ {
			method := reflect.ValueOf(e).MethodByName("As" + other.String())
			if !method.IsValid() {
				t.Fatalf("there is no accessor As%s", other)
			}
			out := method.Call(nil)
			if failed := !out[1].IsNil(); failed == (k == other) {
				t.Errorf("As%s of %s: %v", other, k, out[1])
			}
			if got := out[0].Interface().(event.Payload).EventKind(); got != other {
				t.Errorf("As%s returns the payload of %s", other, got)
			}
		}
	}
}

func TestKindNames(t *testing.T) {
	for _, c := range []struct {
		kind            event.Kind
		name            string
		valid, terminal bool
	}{
		{0, "Kind(0)", false, false},
		{event.KindRunStarted, "RunStarted", true, false},
		{event.KindRunCompleted, "RunCompleted", true, true},
		{event.KindRunFailed, "RunFailed", true, true},
		{event.KindRunCancelled, "RunCancelled", true, true},
		{event.KindRunResumed, "RunResumed", true, false},
		{event.KindTurnFailed, "TurnFailed", true, false},
		{17, "Kind(17)", false, false},
		{255, "Kind(255)", false, false},
	} {
		if c.kind.String() != c.name || c.kind.Valid() != c.valid || c.kind.Terminal() != c.terminal {
			t.Errorf("%d: %s, valid %v, terminal %v", uint8(c.kind), c.kind, c.kind.Valid(), c.kind.Terminal())
		}
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := event.NewID()
		if len(id) != 26 || strings.Trim(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" || seen[id] {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}

func TestRegistryHashCoversNamesAndSchemasOnly(t *testing.T) {
	if event.RegistryHash(nil) != nil {
		t.Error("no tools must have no hash")
	}
	plain := []event.ToolSchemaRef{{Name: "a", SchemaHash: sum("{}")}}
	more := []event.ToolSchemaRef{{Name: "a", SchemaHash: sum("{}"), DescriptionHash: sum("d"), Sandbox: &event.Sandbox{}}}
	if !bytes.Equal(event.RegistryHash(plain), event.RegistryHash(more)) {
		t.Error("an added field changed the hash")
	}
	want, err := canon.Marshal([]map[string]any{{"name": "a", "schema_hash": sum("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(event.RegistryHash(plain), sum(string(want))) {
		t.Error("the hash is not that of the array of maps")
	}
}

func TestToJSON(t *testing.T) {
	e := event.Event{
		RunID: "a\"\x1b", Seq: math.MaxUint64, Timestamp: -1, Kind: event.KindTurnStarted, PrevHash: sum(""),
		Payload: encode(t, event.TurnStarted{TurnID: "t", PromptHash: []byte{0xca, 0xfe}}),
	}
	line, err := event.ToJSON(e)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(line, "\n\r") || !utf8.Valid(line) {
		t.Errorf("not one line: %q", line)
	}
	var got struct {
		Envelope, Hash, Kind string
		Payload              json.RawMessage
		RunID                string `json:"run_id"`
		Seq                  uint64
		TS                   int64
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	back, err := event.Unmarshal(mustHex(t, got.Envelope))
	if err != nil || !reflect.DeepEqual(back, e) {
		t.Errorf("the envelope is %+v, %v", back, err)
	}
	if got.Hash != e.Hash().String() || got.Kind != "TurnStarted" || got.RunID != e.RunID || got.Seq != e.Seq || got.TS != -1 {
		t.Errorf("%+v", got)
	}
	if want := `{"input_tokens":0,"prompt_hash":"h'cafe'","turn_id":"t"}`; string(got.Payload) != want {
		t.Errorf("payload %s, want %s", got.Payload, want)
	}
}

func TestDiff(t *testing.T) {
	started := func(change func(*event.RunStarted)) canon.Raw {
		p := full[0].payload.(event.RunStarted)
		p.ToolSchemas = append([]event.ToolSchemaRef{}, toolRefs...)
		sandbox := *toolRefs[1].Sandbox
		p.ToolSchemas[1].Sandbox = &sandbox
		change(&p)
		return encode(t, p)
	}
	effect := func(v canon.Raw) canon.Raw { return encode(t, event.SideEffectRecorded{Name: "f", Value: v}) }
	for _, c := range []struct {
		name              string
		a, b              canon.Raw
		field, want, have string
	}{
		{"text is given as it is", encode(t, event.RunFailed{Error: "a\nb"}), encode(t, event.RunFailed{Error: "a\tb"}), "error", "a\nb", "a\tb"},
		{"a field inside", started(func(*event.RunStarted) {}),
			started(func(p *event.RunStarted) { p.ToolSchemas[1].Sandbox.Limits.Fuel = 5 }),
			"tool_schemas[1].sandbox.limits.fuel", "20000000000", "5"},
		{"a field that is missing", started(func(*event.RunStarted) {}),
			started(func(p *event.RunStarted) { p.Budget = nil }),
			"budget", `{"max_input_tokens":1000,"max_output_tokens":500,"max_usd":0.25,"max_wall_clock_ms":60000}`, "(absent)"},
		{"a tool more", started(func(p *event.RunStarted) { p.ToolSchemas = p.ToolSchemas[:0] }),
			started(func(p *event.RunStarted) { p.ToolSchemas = []event.ToolSchemaRef{{Name: "x"}} }),
			"tool_schemas[0]", "(absent)", `{"name":"x","schema_hash":null}`},
		{"hashes", encode(t, event.TurnStarted{PromptHash: []byte{0, 1}}), encode(t, event.TurnStarted{PromptHash: []byte{0, 2}}),
			"prompt_hash", `"h'0001'"`, `"h'0002'"`},
		{"bytes that are text", encode(t, event.SideEffectRecorded{Request: []byte("GET /a")}), encode(t, event.SideEffectRecorded{Request: []byte("GET /b")}),
			"request", "GET /a", "GET /b"},
		{"text and bytes that read alike", effect(canon.AppendText(nil, "x")), effect(canon.AppendBytes(nil, []byte("x"))),
			"value", `"x"`, `{"$text":"x"}`},
		{"text and a number that read alike", effect(canon.AppendText(nil, "1")), effect(canon.AppendUint(nil, 1)), "value", `"1"`, `1`},
		{"integer and float", effect(canon.AppendUint(nil, 1)), effect(canon.Raw("\xf9\x3c\x00")), "value", `1`, `1.0`},
		{"the first field in the order of the bytes", encode(t, event.RunFailed{Error: "a", ErrorType: "x", DurationMs: 1}),
			encode(t, event.RunFailed{Error: "b", ErrorType: "y", DurationMs: 2}), "error", "a", "b"},
		{"other shapes", canon.Raw{0x01}, canon.Raw{0xa0}, "", "1", "{}"},
		{"not canonical", canon.Raw{0x18, 0x01}, canon.Raw{0x01}, "", `"h'1801'"`, "1"},
		{"nothing at all", nil, canon.Raw{0x01}, "", "(absent)", "1"},
	} {
		field, want, have, same := event.Diff(c.a, c.b)
		if same || field != c.field || want != c.want || have != c.have {
			t.Errorf("%s: %q: %q, %q (same %v)\nwant %q: %q, %q", c.name, field, want, have, same, c.field, c.want, c.have)
		}
	}
	if field, want, have, same := event.Diff(effect(nil), effect(nil)); !same || field+want+have != "" {
		t.Errorf("equal payloads: %q %q %q %v", field, want, have, same)
	}
}

// FuzzUnmarshal checks that an accepted envelope is the one spelling of its
// event, and that nothing in it breaks a reader.
func FuzzUnmarshal(f *testing.F) {
	seed, err := hex.DecodeString(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	for _, c := range refusedEnvelopes {
		b, err := hex.DecodeString(strings.Replace(good, c.old, c.new, 1))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, c := range full {
		raw, err := event.EncodePayload(c.payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(event.AppendEnvelope(nil, event.Event{RunID: runID, Seq: 1, Kind: c.payload.EventKind(), Payload: raw}))
	}
	f.Fuzz(func(t *testing.T, envelope []byte) {
		e, err := event.Unmarshal(envelope)
		if err != nil {
			return
		}
		again, err := event.Marshal(e)
		if err != nil || !bytes.Equal(again, envelope) {
			t.Fatalf("%x becomes %x, %v", envelope, again, err)
		}
		if line, err := event.ToJSON(e); err != nil || !json.Valid(line) {
			t.Fatalf("%x: ToJSON gives %q, %v", envelope, line, err)
		}
		if payload, err := reencode(e); err == nil && !bytes.Equal(payload, e.Payload) {
			if _, _, _, same := event.Diff(e.Payload, payload); same {
				t.Fatalf("%x: Diff sees no difference to %x", e.Payload, payload)
			}
		}
	})
}
