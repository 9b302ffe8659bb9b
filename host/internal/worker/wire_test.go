package worker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/profile"
	"github.com/starling-host/starling/internal/workspace"
	"pgregory.net/rapid"
)

// body returns a frame without its header.
func body(frame []byte) []byte { return frame[headerBytes:] }

func TestMessagesSurviveTheWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meter := sandbox.Meter{Fuel: rapid.Uint64Range(1, 1<<63).Draw(t, "fuel"), PeakMemory: rapid.Uint64().Draw(t, "peak"), Log: rapid.String().Draw(t, "log")}
		meter.Log = strings.ToValidUTF8(meter.Log, "?")
		document := rapid.SliceOf(rapid.Byte()).Draw(t, "document")
		e, err := parseEffect(body(appendBytes(appendMeter(append(begin(nil, kindEffect), byte(opHTTP)), meter, true), document)), sandbox.Meter{})
		if err != nil || e.meter != meter || !bytes.Equal(e.request, document) {
			t.Fatalf("effect %+v, %v", e, err)
		}
		sent := result{meter: meter, err: &failure{class: classLimit, text: meter.Log}, output: document, left: document}
		r, err := parseResult(body(sent.append(begin(nil, kindResult), false)), sandbox.Meter{Log: meter.Log})
		if err != nil || r.meter != meter || *r.err != *sent.err || !bytes.Equal(r.output, document) || !bytes.Equal(r.left, document) {
			t.Fatalf("result %+v, %v", r, err)
		}
		asked := request{7, sandbox.Call{Tool: meter.Log, Args: []string{meter.Log, ""}, Input: document, StopAt: meter.Fuel, Rules: 1, StopErr: errStopped, NoTimeout: true}}
		if rapid.Bool().Draw(t, "files") {
			asked.call.Files = &sandbox.Files{Root: sandbox.Sum(document), Mounts: []sandbox.Mount{{At: "/" + meter.Log, Writable: true}, {At: "/b"}}}
		}
		got, err := parseRequest(body(asked.append(begin(nil, kindCall))))
		if err != nil || got.number != 7 || got.call.Tool != meter.Log || !slices.Equal(got.call.Args, asked.call.Args) || got.call.Env != nil || !bytes.Equal(got.call.Input, document) ||
			got.call.StopAt != meter.Fuel || got.call.Rules != 1 || got.call.StopErr != errStopped || !reflect.DeepEqual(got.call.Files, asked.call.Files) {
			t.Fatalf("request %+v, %v", got, err)
		}
	})
}

func TestWorkerProtocolViolations(t *testing.T) {
	last := sandbox.Meter{Fuel: 10}
	reading := func(fuel uint64) []byte { return appendMeter(nil, sandbox.Meter{Fuel: fuel}, false) }
	tests := []struct {
		name  string
		parse func() error
	}{
		{"an effect that cost nothing", func() error {
			_, err := parseEffect(appendBytes(append([]byte{byte(opNow)}, reading(10)...), ""), last)
			return err
		}},
		{"an effect of an unknown kind", func() error {
			_, err := parseEffect(appendBytes(append([]byte{9}, reading(11)...), ""), last)
			return err
		}},
		{"a result with less fuel than before", func() error {
			_, err := parseResult(result{meter: sandbox.Meter{Fuel: 9}}.append(nil, false), last)
			return err
		}},
		{"a log that is not text", func() error {
			_, err := parseResult(result{meter: sandbox.Meter{Fuel: 11, Log: "\xff"}}.append(nil, true), last)
			return err
		}},
		{"an unknown class", func() error { _, _, err := parseDone([]byte{byte(classes)}); return err }},
		{"more than its fields", func() error { _, _, err := parseDone(append(appendDone(nil, nil, &sandbox.Prepared{}), 0)); return err }},
		{"more pieces than there are pages", func() error {
			_, _, err := parseDone(append(appendBytes((*failure)(nil).append(nil), "{}"), bytes.Repeat([]byte{0, 0, 0, 0, 1, 0, 0, 0}, 1<<10)...))
			return err
		}},
		{"an offset beyond a memory", func() error {
			b := appendUint(appendBytes((*failure)(nil).append(nil), "{}"), 1)
			_, _, err := parseDone(appendBytes(appendUint(b, 1<<32), "b"))
			return err
		}},
		{"a length beyond the end", func() error { _, _, err := parseDone([]byte{1, 255, 255, 255, 255}); return err }},
	}
	for _, tt := range tests {
		if err := tt.parse(); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestAFrameIsBounded(t *testing.T) {
	header := binary.LittleEndian.AppendUint32(nil, 1<<31)
	r := newFrameReader(bytes.NewReader(append(header, byte(kindResult))), 1<<20)
	if _, _, err := r.next(); !errors.Is(err, errProtocol) {
		t.Errorf("a frame over the limit: %v", err)
	}
	// A length that is a lie takes no memory.
	r = newFrameReader(bytes.NewReader(append(header, byte(kindResult))), 1<<32)
	if _, _, err := r.next(); err == nil || r.body.Cap() > 2*maxKept {
		t.Errorf("%d bytes for a frame that is not there, %v", r.body.Cap(), err)
	}
}

// FuzzFromWorker reads, as the host would, what a worker could send.
func FuzzFromWorker(f *testing.F) {
	var good bytes.Buffer
	for _, frame := range [][]byte{
		append(begin(nil, kindReady), `{"Layers":[{"Name":"landlock","On":true}]}`...),
		appendDone(begin(nil, kindDone), &failure{class: classOwn, text: "no"}, &sandbox.Prepared{Start: []byte("{}"), Data: []rewrite.Segment{{Offset: 5, Bytes: []byte("b")}}, ABI: "starling:v1", Imports: []string{"now"}}),
		appendDone(begin(nil, kindDone), failureOf(&rewrite.Refusal{What: "locals", Func: -1, Offset: 7, Hint: "fewer"}), &sandbox.Prepared{}),
		appendBytes(appendMeter(append(begin(nil, kindEffect), byte(opHTTP)), sandbox.Meter{Fuel: 3, Log: "a"}, true), "GET"),
		append(begin(nil, kindObserved), reportEnter, 3, 1, reportImport, 0, 2, reportLeave, 0, 1, reportLine, 2, 1, 7, 1, 0, 0, 0, 'f', 0, 0, 0, 0, reportEnd, 0, 1, reportModule, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, reportFunction, 1, 0, 1, 0, 0, 0, 'f', reportSource, 7, 2, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, reportProgress, 0, 9),
		append(begin(nil, kindContent), make([]byte, 32)...),
		append(begin(nil, kindLeft), append([]byte{1}, workspace.Encode(nil)...)...),
		result{meter: sandbox.Meter{Fuel: 4}, output: []byte("{}"), left: make([]byte, 32)}.append(begin(nil, kindResult), false),
	} {
		if err := send(&good, frame); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good.Bytes())
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newFrameReader(bytes.NewReader(stream), 1<<20)
		var last sandbox.Meter
		measured := profile.New("", func(string, uint32) string { return "" })
		h := &call{module: &Module{engine: &Engine{config: Config{Observers: sandbox.Observers{
			Profile:  func(tool string) sandbox.Profiler { return measured.Call(tool) },
			Source:   func(string) sandbox.Source { return &record{} },
			Progress: func(uint64) {},
		}}}}}
		h.Files = &sandbox.Files{}
		h.files = newFiles(sandbox.Sum(nil))
		h.files.asked = 1 << 62 // more than any fuel pays for
		h.module.prepared.Limits.Depth, h.module.prepared.Imports = 100, []string{"starling:v1.now"}
		defer measured.Trees(1)
		for {
			k, b, err := r.next()
			if err != nil {
				return
			}
			switch k {
			case kindReady:
				if json.Unmarshal(b, new(Report)) != nil {
					err = errProtocol
				}
			case kindDone:
				_, _, err = parseDone(b)
			case kindEffect:
				var e effect
				if e, err = parseEffect(b, last); err == nil {
					last = e.meter
				}
			case kindObserved:
				err = h.observed(b)
			case kindContent:
				err = h.content(b)
			case kindLeft:
				err = h.leaves(b)
			case kindResult:
				var res result
				if res, err = parseResult(b, last); err == nil && res.meter.Fuel < last.Fuel {
					t.Fatal("the count went back")
				}
				if err == nil {
					_, err = h.tree(res.left)
				}
			}
			if err != nil && !errors.Is(err, errProtocol) {
				t.Fatal(err)
			}
		}
	})
}
