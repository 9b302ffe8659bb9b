package sandbox

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// exchange is one call of http by a hand-built guest.
type exchange struct{ request, length, buf, capacity uint32 }

// Where the guest of these tests has its request, and its buffers.
const (
	requestAt = 0x4000
	bufferAt  = 0x5000
)

// exchanges is a tool that makes the calls in turn and returns their results
// as 64-bit numbers, then the 16 bytes at bufferAt.
func exchanges(calls ...exchange) []byte {
	code := asm()
	for i, c := range calls {
		code.I32(int32(outputAt+8*i)).
			I32(int32(c.request)).I32(int32(c.length)).I32(int32(c.buf)).I32(int32(c.capacity)).
			Index(wasm.OpCall, 0).Access(i64Store, 0)
	}
	end := outputAt + 8*len(calls)
	code.I32(int32(end)).I32(bufferAt).I32(16).Memory(wasm.OpMemoryCopy)
	m := tiny(code.I64(int64(abi.Pack(outputAt, uint32(8*len(calls)+16)))), "http")
	m.Data = append(m.Data, wasmtest.Data{Offset: requestAt, Bytes: "GET http://h/ HTTP/1.1\r\n\r\n"})
	return m.Bytes()
}

func TestHTTPHoldsWhatDoesNotFit(t *testing.T) {
	ask := func(buf, capacity uint32) exchange { return exchange{requestAt, 26, buf, capacity} }
	fetch := func(buf, capacity uint32) exchange { return exchange{0, 0, buf, capacity} }
	answers := func(texts ...string) func(string) (string, abi.Status) {
		return func(string) (string, abi.Status) {
			text := texts[0]
			texts = texts[1:]
			if strings.HasPrefix(text, "denied") {
				return text, abi.StatusDenied
			}
			return text, 0
		}
	}
	tests := []struct {
		name    string
		answers []string
		calls   []exchange
		results []int64
		buffer  string
		effects int
	}{
		{"a response that fits", []string{"0123456789"}, []exchange{ask(bufferAt, 10)}, []int64{10}, "0123456789", 1},
		{"a response that is fetched", []string{"0123456789"}, []exchange{ask(bufferAt, 9), fetch(bufferAt, 9), fetch(bufferAt, 10), fetch(bufferAt, 10)}, []int64{10, 10, 10, -6}, "0123456789", 1},
		{"no buffer at all", []string{"0123456789"}, []exchange{ask(0xaaaaaaaa, 0), fetch(bufferAt, 16)}, []int64{10, 10}, "0123456789", 1},
		{"a failure and its text", []string{"denied: h"}, []exchange{ask(bufferAt, 16), fetch(bufferAt, 0), fetch(bufferAt, 16), fetch(bufferAt, 16)}, []int64{-1, 9, 9, -6}, "denied: h", 1},
		{"a failure without text", []string{""}, []exchange{ask(bufferAt, 16), fetch(bufferAt, 16)}, []int64{0, -6}, "", 1},
		{"nothing to fetch", nil, []exchange{fetch(bufferAt, 16)}, []int64{-6}, "", 0},
		{"a fetch with a wild request address", nil, []exchange{{0xffffffff, 0, bufferAt, 16}}, []int64{-6}, "", 0},
		{"a new exchange drops what is held", []string{"0123456789", "abc"}, []exchange{ask(bufferAt, 0), ask(bufferAt, 0), fetch(bufferAt, 16)}, []int64{10, 3, 3}, "abc", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onEveryEngine(t, func(t *testing.T, e *Engine) {
				w := &world{http: answers(tt.answers...)}
				got, err := load(t, e, exchanges(tt.calls...), Limits{}).Call(t.Context(), Call{Input: []byte("x")}, w)
				if err != nil {
					t.Fatal(err)
				}
				var results []int64
				for i := range tt.calls {
					results = append(results, int64(binary.LittleEndian.Uint64(got.Output[8*i:])))
				}
				if diff := cmp.Diff(tt.results, results); diff != "" {
					t.Error(diff)
				}
				if buffer := strings.TrimRight(string(got.Output[8*len(tt.calls):]), "\x00"); buffer != tt.buffer {
					t.Errorf("buffer %q, want %q", buffer, tt.buffer)
				}
				if len(w.effects) != tt.effects {
					t.Errorf("effects %v", w.effects)
				}
				for _, r := range w.requests {
					if r != "GET http://h/ HTTP/1.1\r\n\r\n" {
						t.Errorf("request %q", r)
					}
				}
			})
		})
	}
}

func TestHTTPEndsAGuestThatLiesOrAsksForTooMuch(t *testing.T) {
	tests := []struct {
		name   string
		call   exchange
		limits Limits
		class  error
		text   string
		sent   bool
	}{
		{"a request outside of memory", exchange{0xffff, 2, bufferAt, 16}, Limits{}, abi.ErrPanicked, "http: the request (2 bytes at 0xffff) is outside of memory", false},
		{"a request of 4 GiB", exchange{1, 0xffffffff, bufferAt, 16}, Limits{}, abi.ErrPanicked, "http: the request", false},
		{"a buffer outside of memory", exchange{requestAt, 26, 0xfff8, 9}, Limits{}, abi.ErrPanicked, "http: the buffer (9 bytes at 0xfff8) is outside of memory", false},
		{"a buffer that wraps around", exchange{requestAt, 26, 0xfffffff8, 16}, Limits{}, abi.ErrPanicked, "http: the buffer", false},
		{"a wild buffer for a fetch", exchange{0, 0, 0xffffffff, 1}, Limits{}, abi.ErrPanicked, "http: the buffer", false},
		{"a request larger than what may be recorded", exchange{requestAt, 26, bufferAt, 16}, Limits{EffectBytes: 25}, abi.ErrLimit, "more than 25 bytes", false},
		{"a response larger than what may be recorded", exchange{requestAt, 26, bufferAt, 16}, Limits{EffectBytes: 26}, abi.ErrLimit, "more than 26 bytes", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onEveryEngine(t, func(t *testing.T, e *Engine) {
				w := &world{}
				_, err := load(t, e, exchanges(tt.call), tt.limits).Call(t.Context(), Call{Input: []byte("x")}, w)
				if !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("error %v", err)
				}
				if sent := len(w.requests) > 0; sent != tt.sent {
					t.Errorf("requests %v", w.requests)
				}
			})
		})
	}
}
