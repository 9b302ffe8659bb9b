package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// idle returns an open session of a tool that does not run, for calling host
// functions by hand. Its memory is one page.
func idle(t testing.TB, w *world) *session {
	t.Helper()
	m := load(t, compiler(), with(func(m *wasmtest.Module) { m.Data = nil }).Bytes(), Limits{})
	s, err := m.begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.end(s); err != nil {
			t.Error(err)
		}
	})
	s.endStart()
	s.name, s.imports = "weather", w
	s.attend(context.Background(), false)
	s.allow(m.limits.Fuel)
	return s
}

func wasiCall(s *session, name string, params ...uint64) errno {
	i := slices.IndexFunc(wasiFuncs, func(f hostFunc) bool { return f.name == name })
	return errno(wasiFuncs[i].do(s, append(args(nil), params...)))
}

func (s *session) u32(at uint32) uint32        { return binary.LittleEndian.Uint32(s.view(area{at, 4})) }
func (s *session) u64(at uint32) uint64        { return uint64(s.u32(at)) | uint64(s.u32(at+4))<<32 }
func (s *session) put(at uint32, data ...byte) { s.instance.memory.Write(at, data) }

func TestEveryFunctionThatTheGateLetsThroughIsThere(t *testing.T) {
	want := map[string]bool{}
	for _, im := range rewrite.AllowedImports() {
		want[im.Module+"."+im.Name] = true
	}
	got := map[string]bool{}
	for module, functions := range map[string][]hostFunc{abi.Version: starlingFuncs, abi.WASIModule: wasiFuncs} {
		for _, f := range functions {
			got[module+"."+f.name] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 49 {
		t.Errorf("%d functions\n%s", len(got), diff)
	}
}

// The table of spec/abi.md, section 7, is compared with the functions'
// results for the best possible arguments.
func TestEveryFunctionAnswersAsItsRowInTheSpecSays(t *testing.T) {
	rows := specRows(t)
	if len(rows) != 46 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	order := []string{}
	for _, f := range wasiFuncs {
		order = append(order, f.name)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(rows)), slices.Sorted(slices.Values(order))); diff != "" {
		t.Fatal(diff)
	}
	s := idle(t, &world{})
	for _, name := range order {
		if name == "proc_exit" {
			continue
		}
		row := rows[name]
		params := make([]uint64, 9)
		switch name {
		case "fd_write":
			params[0] = 1
		case "clock_time_get":
			params[2] = 8
		case "poll_oneoff":
			params[0], params[2] = 0x4000, 1 // where nothing has been written
		}
		if got := wasiCall(s, name, params...); got != row.first {
			t.Errorf("%s: %d, the table says %d", name, got, row.first)
		}
		if !row.descriptor {
			continue
		}
		params[0] = 3
		if got := wasiCall(s, name, params...); got != eBadf {
			t.Errorf("%s on descriptor 3: %d, the table says 8", name, got)
		}
	}
}

type specRow struct {
	first      errno
	descriptor bool // "else EBADF"
}

func specRows(t *testing.T) map[string]specRow {
	text, err := os.ReadFile("../../spec/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]errno{"EBADF": eBadf, "EINVAL": eInval, "ENOENT": eNoent, "ENOSYS": eNosys, "ENOTSOCK": eNotsoc, "ENOTSUP": eNotsup, "ESPIPE": eSpipe}
	line := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (does not return|0|([A-Z]+) \\(([0-9]+)\\))(.*)$")
	rows := map[string]specRow{}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		row := specRow{first: names[m[3]], descriptor: strings.Contains(m[5], "else EBADF (8)")}
		rows[m[1]] = row
	}
	return rows
}

func TestWASIArguments(t *testing.T) {
	s := idle(t, &world{})
	wasiCall(s, "args_sizes_get", 0, 4)
	wasiCall(s, "args_get", 16, 32)
	view, _ := s.instance.memory.Read(32, 8)
	if s.u32(0) != 1 || s.u32(4) != 8 || s.u32(16) != 32 || string(view) != "weather\x00" {
		t.Errorf("%d arguments, %d bytes, at %d: %q", s.u32(0), s.u32(4), s.u32(16), view)
	}
	s.put(0, 9, 9, 9, 9, 9, 9, 9, 9)
	wasiCall(s, "environ_sizes_get", 0, 4)
	if s.u64(0) != 0 {
		t.Errorf("an environment of %#x", s.u64(0))
	}
}

func TestWASIClock(t *testing.T) {
	w := &world{}
	s := idle(t, w)
	read := func(id uint64) uint64 {
		if e := wasiCall(s, "clock_time_get", id, 0, 0); e != success {
			t.Fatalf("errno %d", e)
		}
		s.clock.ran = s.instance.fuel.Get() // leave out the price of the answer
		return s.u64(0)
	}
	if read(1) != 1000 || read(1) != 2000 || len(w.effects) != 0 {
		t.Errorf("monotonic, then effects %v", w.effects)
	}
	if got := read(0); got != noon+1_000_000_000 {
		t.Errorf("the first reading is %d, not what now answered", got)
	}
	if got := read(0); got != noon+1_000_001_000 || len(w.effects) != 1 {
		t.Errorf("the second reading is %d, effects %v", got, w.effects)
	}
	if read(1) != 5000 {
		t.Error("the two clocks do not move together")
	}
	s.instance.fuel.Set(s.instance.fuel.Get() + 123)
	if read(1) != 6123 {
		t.Error("the clock does not move with the fuel")
	}
	if got := importNow(s, nil); got != noon+2_000_000_000 || read(0) != got+1000 {
		t.Errorf("the clock runs behind what now has answered")
	}
	if got := read(1); got < 1_000_000_000 {
		t.Errorf("monotonic %d: it did not follow", got)
	}
	w.time -= 5_000_000_000
	before := read(0)
	if importNow(s, nil); read(0) != before+1000 {
		t.Error("a time in the past has set the clock back")
	}
	for _, id := range []uint64{2, 3, 99} {
		if wasiCall(s, "clock_time_get", id, 0, 0) != eInval || wasiCall(s, "clock_res_get", id, 0) != eInval {
			t.Errorf("clock %d is there", id)
		}
	}
	if e := wasiCall(s, "clock_time_get", 0, 0, 65529); e != eFault {
		t.Errorf("errno %d for an address outside of memory", e)
	}
}

// TestExchangesTakeTime: an exchange moves both clocks by the time that Imports reports, on all
// engines, and a subscription that was due meanwhile is over at once. Nothing else that http does
// takes time.
func TestExchangesTakeTime(t *testing.T) {
	read := func(code *wasm.Asm, at, id int32) {
		code.I32(id).I64(0).I32(outputAt+at).Index(wasm.OpCall, 1).Op(wasm.OpDrop)
	}
	http := func(code *wasm.Asm, request, length int32) {
		code.I32(request).I32(length).I32(bufferAt).I32(64).Index(wasm.OpCall, 0).Op(wasm.OpDrop)
	}
	code := asm()
	for i, length := range []int32{26, 0, 26} { // an exchange, a fetch, an exchange
		read(code, int32(32*i), 1)
		read(code, int32(32*i+8), 0)
		http(code, requestAt, length)
		read(code, int32(32*i+16), 1)
		read(code, int32(32*i+24), 0)
	}
	m := tiny(code.I64(int64(abi.Pack(outputAt, 96))), "http", "clock_time_get")
	m.Data = append(m.Data, wasmtest.Data{Offset: requestAt, Bytes: "GET http://h/ HTTP/1.1\r\n\r\n"})
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		for _, took := range []time.Duration{-time.Second, 0, 1, 3 * time.Second, 1000 * time.Hour} {
			got, err := load(t, e, m.Bytes(), Limits{}).Call(t.Context(), Call{Tool: "t", Input: []byte("{}")}, &world{took: took})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				at := func(n int) uint64 { return binary.LittleEndian.Uint64(got.Output[32*i+8*n:]) }
				want := uint64(max(took, 0))
				if i == 1 {
					want = 0
				}
				// Beside that there are four readings, and a nanosecond for each unit of fuel.
				for clock := range 2 {
					if passed := at(2+clock) - at(clock) - want; passed < 2*tick || passed > 4*tick {
						t.Errorf("an exchange of %v, step %d: clock %d is %d ns too late", took, i, clock, passed)
					}
				}
			}
		}
	})
}

func TestWASIClockIsAnchoredByNowToo(t *testing.T) {
	w := &world{}
	s := idle(t, w)
	got := importNow(s, nil)
	if wasiCall(s, "clock_time_get", 0, 0, 0); s.u64(0) != got+1000 || len(w.effects) != 1 {
		t.Errorf("now %d, then %d, effects %v", got, s.u64(0), w.effects)
	}
}

func TestClockStopsInsteadOfTurningOver(t *testing.T) {
	var c clock
	c.observe(math.MaxInt64)
	for range 10 {
		before := c.mono
		if c.advance(math.MaxUint64); c.mono < before || c.mono != maxMono {
			t.Fatalf("from %d to %d", before, c.mono)
		}
	}
	c.observe(-1)
	if c.realtime() != math.MaxInt64+maxMono {
		t.Errorf("realtime %d", c.realtime())
	}
}

func TestWASIRandomIsTheKnownStream(t *testing.T) {
	w := &world{}
	s := idle(t, w)
	for _, part := range []struct{ at, length uint64 }{{0, 3}, {3, 0}, {3, 61}, {64, 9000}} {
		if e := wasiCall(s, "random_get", part.at, part.length); e != success {
			t.Fatalf("errno %d", e)
		}
	}
	want := make([]byte, 9064)
	rand.NewChaCha8([32]byte{1, 2, 3}).Read(want)
	if got, _ := s.instance.memory.Read(0, 9064); !slices.Equal(got, want) {
		t.Error("the bytes are not those of ChaCha8 under the seed")
	}
	if !slices.Equal(w.effects, []string{"seed"}) {
		t.Errorf("effects %v", w.effects)
	}
	if e := wasiCall(s, "random_get", 65535, 2); e != eFault {
		t.Errorf("errno %d for an area outside of memory", e)
	}
}

func TestTheHostsOwnWorkCostsFuel(t *testing.T) {
	s := idle(t, &world{})
	s.allow(60_000)
	defer func() {
		if e, ok := recover().(*guestStopped); !ok || !errors.Is(e.err, abi.ErrFuel) || s.meter().Fuel != 60_001 {
			t.Errorf("ended with %v at %d", e, s.meter().Fuel)
		}
	}()
	wasiCall(s, "random_get", 0, 60_000)
	wasiCall(s, "random_get", 0, 1)
	t.Error("the budget did not end it")
}

func TestWASIStreams(t *testing.T) {
	s := idle(t, &world{})
	s.put(0x1000, []byte("hello, world")...)
	vector := func(areas ...uint32) {
		var list []byte
		for _, v := range areas {
			list = binary.LittleEndian.AppendUint32(list, v)
		}
		s.put(0, list...)
	}
	vector(0x1000, 7, 0xaaaaaaaa, 0, 0x1007, 5)
	if e := wasiCall(s, "fd_write", 1, 0, 3, 0x100); e != success || s.u32(0x100) != 12 || s.log.text() != "hello, world" {
		t.Errorf("errno %d, %d bytes, log %q", e, s.u32(0x100), s.log.text())
	}
	tests := []struct {
		name   string
		areas  []uint32
		params []uint64
		want   errno
	}{
		{"an area outside of memory", []uint32{0x1000, 1, 65535, 2}, []uint64{2, 0, 2, 0x100}, eFault},
		{"a list outside of memory", nil, []uint64{2, 65530, 1, 0x100}, eFault},
		{"a result outside of memory", []uint32{0x1000, 1}, []uint64{2, 0, 1, 65533}, eFault},
		{"more areas than allowed", nil, []uint64{2, 0, 1025, 0x100}, eInval},
		{"all the areas there could be", nil, []uint64{2, 0, math.MaxUint32, 0x100}, eInval},
		{"standard input", []uint32{0x1000, 1}, []uint64{0, 0, 1, 0x100}, eBadf},
	}
	for _, tt := range tests {
		vector(tt.areas...)
		if e := wasiCall(s, "fd_write", tt.params...); e != tt.want || s.log.text() != "hello, world" {
			t.Errorf("%s: errno %d, log %q", tt.name, e, s.log.text())
		}
	}
	s.stdin = []byte("input")
	vector(0x2000, 2, 0x2010, 10)
	for _, want := range []uint32{5, 0} {
		if e := wasiCall(s, "fd_read", 0, 0, 2, 0x100); e != success || s.u32(0x100) != want {
			t.Errorf("errno %d, %d bytes read, want %d", e, s.u32(0x100), want)
		}
	}
	if in, _ := s.instance.memory.Read(0x2010, 4); string(in) != "put\x00" {
		t.Errorf("read %q", in)
	}
}

func TestWASIExitEndsTheCall(t *testing.T) {
	s := idle(t, &world{})
	defer func() {
		if e, ok := recover().(*exit); !ok || e.code != 7 {
			t.Errorf("panicked with %v", e)
		}
	}()
	wasiCall(s, "proc_exit", 7|1<<40) // with garbage in the upper half
}

func TestWASIPoll(t *testing.T) {
	const ms = 1_000_000
	timer := func(id uint32, timeout uint64, flags uint16) subscription {
		return subscription{kind: eventClock, id: id, timeout: timeout, flags: flags}
	}
	fd := func(kind byte, id uint32) subscription { return subscription{kind: kind, id: id} }
	type event struct {
		userdata uint64
		err      errno
	}
	tests := []struct {
		name    string
		subs    []subscription
		events  []event
		passed  uint64 // virtual time, beside the tick
		effects int
	}{
		{"one timer", []subscription{timer(1, 5*ms, 0)}, []event{{0, 0}}, 5 * ms, 0},
		{"the earlier of two timers", []subscription{timer(1, 5*ms, 0), timer(1, 3*ms, 0)}, []event{{1, 0}}, 3 * ms, 0},
		{"two timers at once", []subscription{timer(1, 5*ms, 0), timer(0, 5*ms, 0)}, []event{{0, 0}, {1, 0}}, 5 * ms, 0},
		{"an absolute time", []subscription{timer(1, 5*ms, clockAbstime)}, []event{{0, 0}}, 5*ms - tick, 0},
		{"a time that has passed", []subscription{timer(1, 1, clockAbstime), timer(1, 5*ms, 0)}, []event{{0, 0}}, 0, 0},
		{"a time of day", []subscription{timer(0, noon+1_000_000_000+2*ms, clockAbstime)}, []event{{0, 0}}, 2 * ms, 1},
		{"a stream before a timer", []subscription{timer(1, 5*ms, 0), fd(eventFdRead, 0), fd(eventFdWrite, 1)}, []event{{1, 0}, {2, 0}}, 0, 0},
		{"a stream the wrong way", []subscription{fd(eventFdWrite, 0), fd(eventFdRead, 2)}, []event{{0, eBadf}, {1, eBadf}}, 0, 0},
		{"something that is not open", []subscription{fd(eventFdRead, 3), timer(1, 5*ms, 0)}, []event{{0, eBadf}}, 0, 0},
		{"a clock that is not there", []subscription{timer(2, 5*ms, 0)}, []event{{0, eInval}}, 0, 0},
		{"a flag that is not there", []subscription{timer(1, 5*ms, 2)}, []event{{0, eInval}}, 0, 0},
		{"a timer for ever", []subscription{timer(1, math.MaxUint64, 0)}, []event{{0, 0}}, maxMono - tick, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{}
			s := idle(t, w)
			for i, sub := range tt.subs {
				sub.userdata = uint64(i)
				s.put(uint32(i)*subscriptionSize, sub.encode()...)
			}
			s.clock.ran = (subscriptionSize + eventSize) * uint64(len(tt.subs)) // leave out the price of the call
			if e := wasiCall(s, "poll_oneoff", 0, 0x1000, uint64(len(tt.subs)), 0x2000); e != success {
				t.Fatalf("errno %d", e)
			}
			var events []event
			for i := range s.u32(0x2000) {
				at := 0x1000 + i*eventSize
				events = append(events, event{s.u64(at), errno(s.u32(at + 8))})
			}
			for i := range events {
				events[i].err &= 0xffff
			}
			if diff := cmp.Diff(tt.events, events, cmp.AllowUnexported(event{})); diff != "" {
				t.Error(diff)
			}
			if passed := s.clock.mono - tick; passed != tt.passed || len(w.effects) != tt.effects {
				t.Errorf("%d ns passed, want %d; effects %v", passed, tt.passed, w.effects)
			}
		})
	}
}

func (sub subscription) encode() []byte {
	b := make([]byte, subscriptionSize)
	binary.LittleEndian.PutUint64(b, sub.userdata)
	b[8] = sub.kind
	binary.LittleEndian.PutUint32(b[16:], sub.id)
	binary.LittleEndian.PutUint64(b[24:], sub.timeout)
	binary.LittleEndian.PutUint16(b[40:], sub.flags)
	return b
}

func TestWASIPollRefuses(t *testing.T) {
	s := idle(t, &world{})
	unknown := subscription{kind: 3}
	s.put(0x100, unknown.encode()...)
	tests := []struct {
		name   string
		params []uint64
		want   errno
	}{
		{"nothing to wait for", []uint64{0, 0x1000, 0, 0x2000}, eInval},
		{"too much to wait for", []uint64{0, 0x1000, 1025, 0x2000}, eInval},
		{"subscriptions outside of memory", []uint64{65500, 0x1000, 1, 0x2000}, eFault},
		{"events outside of memory", []uint64{0, 65510, 1, 0x2000}, eFault},
		{"a result outside of memory", []uint64{0, 0x1000, 1, 65533}, eFault},
		{"an unknown kind of event", []uint64{0x100, 0x1000, 1, 0x2000}, eInval},
	}
	for _, tt := range tests {
		if e := wasiCall(s, "poll_oneoff", tt.params...); e != tt.want || s.clock.mono != 0 {
			t.Errorf("%s: errno %d, want %d", tt.name, e, tt.want)
		}
	}
}

// Whatever a guest passes to whichever function, the host comes to no harm:
// the function returns, or ends the call on purpose.
func FuzzImports(f *testing.F) {
	f.Add(uint8(37), uint64(0), uint64(0x1000), uint64(3), uint64(0x2000), []byte{8: 1, 48: 2})
	f.Add(uint8(26), uint64(1), uint64(0), uint64(2), uint64(0x100), []byte{0, 0x10, 0, 0, 5})
	f.Add(uint8(48), uint64(0xffff), uint64(2), uint64(0), uint64(0), []byte("GET"))
	all := slices.Concat(wasiFuncs, starlingFuncs)
	s := idle(f, &world{})
	f.Fuzz(func(t *testing.T, index uint8, a, b, c, d uint64, memory []byte) {
		s.limits.Effects = math.MaxUint64
		s.instance.memory.Write(0, memory[:min(len(memory), 65536)])
		s.log = capture{limit: 100}
		s.allow(1 << 40)
		defer func() {
			switch v := recover().(type) {
			case nil, *exit:
			case *guestStopped:
				if !errors.Is(v.err, abi.ErrPanicked) && !errors.Is(v.err, abi.ErrLimit) {
					t.Errorf("ended with %v", v.err)
				}
			default:
				t.Errorf("panicked with %v", v)
			}
		}()
		all[int(index)%len(all)].do(s, args{a, b, c, d, 0, 0, 0, 0, 0})
		if text := s.log.text(); len(text) > 100 {
			t.Errorf("a log of %d bytes", len(text))
		}
	})
}
