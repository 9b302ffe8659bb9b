package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

func TestSealInput(t *testing.T) {
	got, err := envelope("dice", []byte(`{"rolls":2}`), step.Call{RunID: "R", CallID: "C", Attempt: 3})
	want := `{"tool":"dice","input":{"rolls":2},"context":{"run_id":"R","call_id":"C","attempt":3}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
	got, err = envelope("dice", []byte(`{}`), step.Call{RunID: "R", CallID: "C", Attempt: 1, Variables: []byte(`{"tenant":"a"}`)})
	want = `{"tool":"dice","input":{},"context":{"run_id":"R","call_id":"C","attempt":1,"variables":{"tenant":"a"}}}`
	if err != nil || string(got) != want {
		t.Errorf("with variables: got %s (%v), want %s", got, err, want)
	}
}

// parsed returns a document.
func parsed(t testing.TB, doc string) *canon.Doc {
	t.Helper()
	d, err := canon.Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestGuestsSeeTheBytesOfEncodingJSON: the document that a guest gets is that of before, escapes
// for HTML included, so that recorded fuel stays right.
func TestGuestsSeeTheBytesOfEncodingJSON(t *testing.T) {
	call := step.Call{RunID: "R<&>", CallID: "C", Attempt: 1, Variables: []byte(`{"a":"<b>"}`)}
	for _, doc := range []string{
		`{"b":[1,2.50,-0,null,true],"a":"<script>&amp;"}`, "\"\u2028\u2029\u2027\xe2\x80\xa8\xe2\x80\xaa\"", `"\u0000\u001f\u007f\"\\\/é😀"`, `{}`, `"<"`,
	} {
		input := parsed(t, doc).JSON
		want, err := json.Marshal(abi.Input{Tool: "t<", Input: abi.JSON(input), Context: abi.Context{RunID: call.RunID, CallID: call.CallID, Attempt: 1, Variables: abi.JSON(call.Variables)}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := envelope("t<", input, call)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %s (%v), want %s", doc, got, err, want)
		}
	}
}

func TestOpenOutput(t *testing.T) {
	for name, c := range map[string]struct{ doc, want, wantErr string }{
		"an output":             {doc: ` {"output": {"b":1,"a":1.0}} `, want: `{"a":1.0,"b":1}`},
		"null is an output":     {doc: `{"output":null}`, want: `null`},
		"neither":               {doc: `{}`, wantErr: "neither"},
		"both":                  {doc: `{"output":1,"error":{"kind":"tool","message":"x"}}`, wantErr: "neither"},
		"a bare value":          {doc: `[1]`, wantErr: "neither"},
		"something else":        {doc: `{"result":1}`, wantErr: "neither"},
		"no JSON":               {doc: `{"output":`, wantErr: "no JSON document"},
		"invalid UTF-8":         {doc: "{\"output\":\"\xff\"}", wantErr: "no JSON document"},
		"an error":              {doc: `{"error":{"kind":"tool","message":"no such customer"}}`, wantErr: "no such customer"},
		"an error without text": {doc: `{"error":{}}`, wantErr: "gave no reason"},
		"an error of no shape":  {doc: `{"error":7}`, wantErr: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := openOutput([]byte(c.doc))
			if c.wantErr == "" && (err != nil || string(got.JSON) != c.want || !bytes.Equal(got.CBOR, parsed(t, c.want).CBOR)) {
				t.Errorf("got %+v (%v), want %s", got, err, c.want)
			}
			if c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("got error %v, want one that contains %q", err, c.wantErr)
			}
		})
	}
}

func TestPrinted(t *testing.T) {
	if got, err := printed([]byte(" {\"b\": 1, \"a\":2}\n")); err != nil || string(got.JSON) != `{"a":2,"b":1}` {
		t.Errorf("got %+v (%v)", got, err)
	}
	for _, doc := range []string{"", "\n", "Hello, world!\n", "{}\n{}\n"} {
		if got, err := printed([]byte(doc)); err == nil || !strings.Contains(err.Error(), "no JSON document to its standard output: canon: JSON line ") {
			t.Errorf("%q: got %+v, %v", doc, got, err)
		}
	}
}

func TestReportedKindsReachTheRetryPolicy(t *testing.T) {
	for _, c := range []struct {
		failure string
		kind    abi.ErrorKind
		after   time.Duration
	}{
		{`{"kind":"tool","message":"m"}`, abi.ErrorTool, 0},
		{`{"kind":"made-up","message":"m"}`, abi.ErrorTool, 0},
		{`{"kind":"transient","message":"m"}`, abi.ErrorTransient, 0},
		{`{"kind":"cancel","message":"m"}`, abi.ErrorCancel, 0},
		{`{"kind":"discard","message":"m"}`, abi.ErrorDiscard, 0},
		{`{"kind":"snooze","message":"m","retry_after_ms":1500}`, abi.ErrorSnooze, 1500 * time.Millisecond},
		{`{"kind":"snooze","message":"m","retry_after_ms":-1}`, abi.ErrorSnooze, 0},
	} {
		_, err := openOutput([]byte(`{"error":` + c.failure + `}`))
		if kind, after := tool.KindOf(fmt.Errorf("call: %w", err)); kind != c.kind || after != c.after {
			t.Errorf("%s: got %s, %v; want %s, %v", c.failure, kind, after, c.kind, c.after)
		}
	}
}

func TestReportedKinds(t *testing.T) {
	_, err := openOutput([]byte(`{"error":{"kind":"transient","message":"try again"}}`))
	if !errors.Is(err, tool.ErrTransient) {
		t.Errorf("%v is not transient", err)
	}
	_, err = openOutput([]byte(`{"error":{"kind":"snooze","message":"later","retry_after_ms":1500}}`))
	var reported *Error
	if !errors.As(err, &reported) || reported.Kind != abi.ErrorSnooze || reported.RetryAfter != 1500*time.Millisecond {
		t.Errorf("got %#v", err)
	}
	if errors.Is(err, tool.ErrTransient) {
		t.Error("a snooze is not a transient failure: it consumes no attempt")
	}
	_, err = openOutput([]byte(`{"error":{"kind":"made-up","message":"` + strings.Repeat("é", 8000) + `"}}`))
	if !errors.As(err, &reported) || reported.Kind != abi.ErrorTool || len(reported.Message) > maxMessageBytes+3 {
		t.Errorf("kind %q, %d bytes", reported.Kind, len(reported.Message))
	}
}
