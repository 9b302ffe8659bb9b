package sandbox

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/starling-host/starling/abi"
)

// errno is a result of a WASI function (preview 1, type errno).
type errno uint16

const (
	success      errno = 0
	eBadf        errno = 8
	eBusy        errno = 10
	eExist       errno = 20
	eFault       errno = 21
	eFbig        errno = 22
	eIlseq       errno = 25
	eInval       errno = 28
	eIsdir       errno = 31
	eLoop        errno = 32
	eMfile       errno = 33
	eNametoolong errno = 37
	eNoent       errno = 44
	eNospc       errno = 51
	eNosys       errno = 52
	eNotdir      errno = 54
	eNotempty    errno = 55
	eNotsoc      errno = 57
	eNotsup      errno = 58
	ePerm        errno = 63
	eRofs        errno = 69
	eSpipe       errno = 70
	eXdev        errno = 75
)

// wasiFuncs are the 46 functions of WASI preview 1, as functions of the call.
// There are only a clock that moves when it is read, randomness expanded from
// one recorded seed, three standard streams, and the files that a call is given
// (see Files). The table of spec/abi.md, section 8, is in the same order.
var wasiFuncs = []hostFunc{
	wasi("args_get", (*session).argsGet),
	wasi("args_sizes_get", (*session).argsSizesGet),
	wasi("clock_res_get", (*session).clockResGet),
	wasi("clock_time_get", (*session).clockTimeGet),
	wasi("environ_get", (*session).environGet),
	wasi("environ_sizes_get", (*session).environSizesGet),
	wasi("fd_advise", onFile(onStream(eNotsup), (*filesystem).advise)),
	wasi("fd_allocate", onFile(onStream(eNotsup), (*filesystem).allocate)),
	wasi("fd_close", onFile(onStream(success), (*filesystem).close)),
	wasi("fd_datasync", onFile(onStream(eNotsup), (*filesystem).sync)),
	wasi("fd_fdstat_get", onFile((*session).fdFdstatGet, (*filesystem).fdstat)),
	wasi("fd_fdstat_set_flags", onFile(onStream(success), (*filesystem).setFlags)),
	wasi("fd_fdstat_set_rights", onFile(onStream(eNotsup), func(*filesystem, *descriptor, args) errno { return eNotsup })),
	wasi("fd_filestat_get", onFile((*session).fdFilestatGet, (*filesystem).filestat)),
	wasi("fd_filestat_set_size", onFile(onStream(eNotsup), (*filesystem).setSize)),
	wasi("fd_filestat_set_times", onFile(onStream(eNotsup), (*filesystem).setTimes)),
	wasi("fd_pread", onFile(onStream(eSpipe), (*filesystem).pread)),
	wasi("fd_prestat_get", (*session).fdPrestatGet),
	wasi("fd_prestat_dir_name", (*session).fdPrestatDirName),
	wasi("fd_pwrite", onFile(onStream(eSpipe), (*filesystem).pwrite)),
	wasi("fd_read", onFile((*session).fdRead, (*filesystem).read)),
	wasi("fd_readdir", onFile(onStream(eNotsup), (*filesystem).readdir)),
	wasi("fd_renumber", onFile(onStream(eNotsup), (*filesystem).renumber)),
	wasi("fd_seek", onFile(onStream(eSpipe), (*filesystem).seek)),
	wasi("fd_sync", onFile(onStream(eNotsup), (*filesystem).sync)),
	wasi("fd_tell", onFile(onStream(eSpipe), (*filesystem).tell)),
	wasi("fd_write", onFile((*session).fdWrite, (*filesystem).write)),
	wasi("path_create_directory", onPath(0, (*filesystem).createFolder)),
	wasi("path_filestat_get", onPath(0, (*filesystem).pathFilestat)),
	wasi("path_filestat_set_times", onPath(0, (*filesystem).pathSetTimes)),
	wasi("path_link", onPath(0, (*filesystem).link)),
	wasi("path_open", onPath(0, (*filesystem).pathOpen)),
	wasi("path_readlink", onPath(0, (*filesystem).readlink)),
	wasi("path_remove_directory", onPath(0, (*filesystem).removeFolder)),
	wasi("path_rename", onPath(0, (*filesystem).rename)),
	wasi("path_symlink", onPath(2, (*filesystem).symlink)),
	wasi("path_unlink_file", onPath(0, (*filesystem).unlink)),
	wasi("poll_oneoff", (*session).pollOneoff),
	wasi("proc_exit", func(_ *session, a args) errno { panic(&exit{a.u32(0)}) }),
	wasi("proc_raise", always(eNosys)),
	wasi("random_get", (*session).randomGet),
	wasi("sched_yield", always(success)),
	wasi("sock_accept", onStream(eNotsoc)),
	wasi("sock_recv", onStream(eNotsoc)),
	wasi("sock_send", onStream(eNotsoc)),
	wasi("sock_shutdown", onStream(eNotsoc)),
}

// wasiFunc is the body of a WASI function.
type wasiFunc func(*session, args) errno

func wasi(name string, f wasiFunc) hostFunc {
	return hostFunc{name, func(s *session, a args) uint64 { return uint64(f(s, a)) }}
}

// always returns the same errno for all arguments.
func always(e errno) wasiFunc {
	return func(*session, args) errno { return e }
}

// onStream returns e for a standard stream, and EBADF for others.
func onStream(e errno) wasiFunc {
	return func(_ *session, a args) errno {
		if a.u32(0) > 2 {
			return eBadf
		}
		return e
	}
}

// store writes to guest memory, paid by the byte.
func (s *session) store(address uint32, data []byte) errno {
	if !s.instance.has(address, uint64(len(data))) {
		return eFault
	}
	s.charge(uint64(len(data)))
	s.copyIn(address, data)
	return success
}

// The standard streams.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

// Values of WASI's types that describe a stream.
const (
	characterDevice = 2
	rightRead       = 1 << 1
	rightWrite      = 1 << 6
)

// maxVectors bounds the areas of one read or write (POSIX: IOV_MAX).
const maxVectors = 1024

// fdFdstatGet reports a stream as a terminal: not seekable, and worth
// flushing line by line.
func (s *session) fdFdstatGet(a args) errno {
	if a.u32(0) > stderr {
		return eBadf
	}
	stat := make([]byte, 24)
	stat[0] = characterDevice
	binary.LittleEndian.PutUint64(stat[8:], rightRead|rightWrite)
	return s.store(a.u32(1), stat)
}

func (s *session) fdFilestatGet(a args) errno {
	if a.u32(0) > stderr {
		return eBadf
	}
	stat := make([]byte, 64)
	stat[16] = characterDevice
	return s.store(a.u32(1), stat)
}

// fdRead reads a command's input. A tool has its input already; its fd 0 is at end of file.
func (s *session) fdRead(a args) errno {
	if a.u32(0) != stdin {
		return eBadf
	}
	areas, e := s.areas(a)
	if e != success {
		return e
	}
	var total uint32
	for _, area := range areas {
		n := min(area.length, uint32(len(s.stdin)))
		s.charge(uint64(n))
		s.copyIn(area.address, s.stdin[:n])
		s.stdin = s.stdin[n:]
		total += n
	}
	return s.store(a.u32(3), binary.LittleEndian.AppendUint32(nil, total))
}

// fdWrite accepts everything, even beyond the limit of the log: a runtime that cannot write
// its last message would die of that instead.
func (s *session) fdWrite(a args) errno {
	fd := a.u32(0)
	if fd != stdout && fd != stderr {
		return eBadf
	}
	areas, e := s.areas(a)
	if e != success {
		return e
	}
	var total uint32
	for _, area := range areas {
		s.charge(uint64(area.length))
		s.write(fd, s.view(area))
		total += area.length
	}
	return s.store(a.u32(3), binary.LittleEndian.AppendUint32(nil, total))
}

// write appends to the stream. A command's fd 1 is its result, which is useless when
// truncated, so there the limit ends the call.
func (s *session) write(fd uint32, p []byte) {
	if fd != stdout || s.stdout == nil {
		s.log.write(p)
		return
	}
	if uint64(len(s.stdout)+len(p)) > s.limits.OutputBytes {
		s.end(fmt.Errorf("%w: output of more than %d bytes", abi.ErrLimit, s.limits.OutputBytes))
	}
	s.stdout = append(s.stdout, p...)
}

// area is a part of guest memory, WASI's iovec.
type area struct{ address, length uint32 }

// areas returns the areas that an fd_read or fd_write names, after it has
// checked them and the address of the result.
func (s *session) areas(a args) ([]area, errno) {
	list, count, result := a.u32(1), a.u32(2), a.u32(3)
	switch {
	case count > maxVectors:
		return nil, eInval
	case !s.instance.has(list, 8*uint64(count)), !s.instance.has(result, 4):
		return nil, eFault
	}
	s.charge(8 * uint64(count))
	areas := make([]area, count)
	var total uint64
	listed := s.view(area{list, 8 * count})
	for i := range areas {
		areas[i].address = binary.LittleEndian.Uint32(listed[8*i:])
		areas[i].length = binary.LittleEndian.Uint32(listed[8*i+4:])
		if !s.instance.has(areas[i].address, uint64(areas[i].length)) {
			return nil, eFault
		}
		total += uint64(areas[i].length)
	}
	if total > math.MaxUint32 {
		return nil, eInval // the result has no room for the sum
	}
	return areas, success
}

// view returns a checked area of guest memory. It is valid until the guest
// runs again.
func (s *session) view(a area) []byte {
	if a.length == 0 {
		return nil
	}
	view, _ := s.instance.memory.Read(a.address, a.length)
	return view
}

// Layouts and values of poll_oneoff (preview 1: subscription, event).
const (
	subscriptionSize = 48
	eventSize        = 32

	eventClock   = 0
	eventFdRead  = 1
	eventFdWrite = 2

	clockAbstime = 1 // subclockflags
	hangup       = 1 // eventrwflags
)

// maxSubscriptions bounds the events that a guest can wait for at once.
const maxSubscriptions = 1024

// writeRoom is the number of bytes that a stream claims to accept.
const writeRoom = 64 << 10

// subscription is one event that a guest waits for.
type subscription struct {
	userdata uint64
	kind     byte
	id       uint32 // of the clock, or the file descriptor
	timeout  uint64
	flags    uint16
}

// occurrence is the answer to a subscription.
type occurrence struct {
	sub    subscription
	err    errno
	nbytes uint64
	flags  uint16
}

// pollOneoff waits in virtual time: nothing sleeps. Streams are always ready,
// and so is a subscription that is wrong, with its errno. Otherwise, the
// clock moves to the earliest timeout and everything due by then occurs.
func (s *session) pollOneoff(a args) errno {
	in, out, count, result := a.u32(0), a.u32(1), a.u32(2), a.u32(3)
	switch {
	case count == 0 || count > maxSubscriptions:
		return eInval
	case !s.instance.has(in, subscriptionSize*uint64(count)),
		!s.instance.has(out, eventSize*uint64(count)),
		!s.instance.has(result, 4):
		return eFault
	}
	s.charge((subscriptionSize + eventSize) * uint64(count))
	subs := s.readSubscriptions(in, count)
	for _, sub := range subs {
		if sub.kind > eventFdWrite {
			return eInval
		}
	}
	s.tick()
	occurred := s.wait(subs)
	for i, o := range occurred {
		s.copyIn(out+eventSize*uint32(i), o.encode())
	}
	s.copyIn(result, binary.LittleEndian.AppendUint32(nil, uint32(len(occurred))))
	return success
}

func (s *session) readSubscriptions(in, count uint32) []subscription {
	subs := make([]subscription, count)
	for i := range subs {
		b, _ := s.instance.memory.Read(in+subscriptionSize*uint32(i), subscriptionSize)
		subs[i] = subscription{
			userdata: binary.LittleEndian.Uint64(b),
			kind:     b[8],
			id:       binary.LittleEndian.Uint32(b[16:]),
			timeout:  binary.LittleEndian.Uint64(b[24:]),
			flags:    binary.LittleEndian.Uint16(b[40:]),
		}
	}
	return subs
}

// wait returns what occurs first, in the order of the subscriptions.
func (s *session) wait(subs []subscription) []occurrence {
	left := make([]uint64, len(subs)) // ns until each is due
	earliest := uint64(maxMono)
	for i, sub := range subs {
		left[i] = s.remaining(sub)
		earliest = min(earliest, left[i])
	}
	var occurred []occurrence
	for i, sub := range subs {
		if left[i] <= earliest {
			occurred = append(occurred, s.occur(sub))
		}
	}
	s.clock.advance(earliest)
	return occurred
}

// remaining returns the remaining wait of a subscription, in ns.
func (s *session) remaining(sub subscription) uint64 {
	if sub.kind != eventClock || sub.invalid() {
		return 0
	}
	left := sub.timeout
	if sub.flags&clockAbstime != 0 {
		now := s.clock.mono
		if sub.id == clockRealtime {
			s.anchor()
			now = s.clock.realtime()
		}
		left -= min(left, now)
	}
	return min(left, maxMono)
}

func (sub subscription) invalid() bool {
	return sub.kind == eventClock && (sub.id > clockMonotonic || sub.flags&^clockAbstime != 0)
}

func (s *session) occur(sub subscription) occurrence {
	o := occurrence{sub: sub}
	switch {
	case sub.invalid():
		o.err = eInval
	case sub.kind != eventClock && s.files.descriptor(sub.id) != nil:
		o.nbytes = writeRoom // of a file, which is always ready
	case sub.kind == eventFdRead && sub.id == stdin:
		if o.nbytes = uint64(len(s.stdin)); o.nbytes == 0 {
			o.flags = hangup
		}
	case sub.kind == eventFdWrite && (sub.id == stdout || sub.id == stderr):
		o.nbytes = writeRoom
	case sub.kind != eventClock:
		o.err = eBadf
	}
	return o
}

func (o occurrence) encode() []byte {
	b := make([]byte, eventSize)
	binary.LittleEndian.PutUint64(b, o.sub.userdata)
	binary.LittleEndian.PutUint16(b[8:], uint16(o.err))
	b[10] = o.sub.kind
	binary.LittleEndian.PutUint64(b[16:], o.nbytes)
	binary.LittleEndian.PutUint16(b[24:], o.flags)
	return b
}

// argv returns all arguments. The first is the tool's name: Go's package flag needs it.
func (s *session) argv() []string { return append([]string{s.name}, s.args...) }

func (s *session) argsGet(a args) errno         { return s.storeTexts(a, s.argv()) }
func (s *session) argsSizesGet(a args) errno    { return s.storeSizes(a, s.argv()) }
func (s *session) environGet(a args) errno      { return s.storeTexts(a, s.env) }
func (s *session) environSizesGet(a args) errno { return s.storeSizes(a, s.env) }

// storeTexts writes the addresses of texts, and the texts, each with a zero byte behind it.
func (s *session) storeTexts(a args, texts []string) errno {
	var addresses, buf []byte
	for _, text := range texts {
		addresses = binary.LittleEndian.AppendUint32(addresses, a.u32(1)+uint32(len(buf)))
		buf = append(append(buf, text...), 0)
	}
	if e := s.store(a.u32(0), addresses); e != success {
		return e
	}
	return s.store(a.u32(1), buf)
}

func (s *session) storeSizes(a args, texts []string) errno {
	size := 0
	for _, text := range texts {
		size += len(text) + 1
	}
	if e := s.store(a.u32(0), binary.LittleEndian.AppendUint32(nil, uint32(len(texts)))); e != success {
		return e
	}
	return s.store(a.u32(1), binary.LittleEndian.AppendUint32(nil, uint32(size)))
}

// The supported clocks of WASI. The others count processor time, which guests
// cannot see.
const (
	clockRealtime  = 0
	clockMonotonic = 1
)

func (s *session) clockResGet(a args) errno {
	if a.u32(0) > clockMonotonic {
		return eInval
	}
	return s.store(a.u32(1), binary.LittleEndian.AppendUint64(nil, tick))
}

func (s *session) clockTimeGet(a args) errno {
	id, address := a.u32(0), a.u32(2)
	switch {
	case id > clockMonotonic:
		return eInval
	case !s.instance.has(address, 8):
		return eFault // before the reading, which may be an effect
	}
	return s.store(address, binary.LittleEndian.AppendUint64(nil, s.readClock(id)))
}

// tick moves the clock up to now, in the guest's time, and one reading on.
func (s *session) tick() {
	s.clock.run(s.instance.fuel.Get())
	s.clock.advance(tick)
}

// readClock moves the clock and returns it. The first reading of the
// time of day in a call is the one recorded effect of the clock; the monotonic
// clock is never recorded, since language runtimes read it whenever they
// collect garbage.
func (s *session) readClock(id uint32) uint64 {
	s.tick()
	if id == clockMonotonic {
		return s.clock.mono
	}
	s.anchor()
	return s.clock.realtime()
}

// anchor sets the time of day of the clock, if it is not set.
func (s *session) anchor() {
	if !s.clock.anchored {
		s.now("the time of day")
	}
}

// randomChunk is the number of random bytes made between two fuel checks.
const randomChunk = 64 << 10

// randomGet fills memory from the call's generator: ChaCha8 as C2SP specifies
// it (c2sp.org/chacha8rand), its 64-bit outputs in little-endian order. Its
// key is the one recorded effect of randomness.
func (s *session) randomGet(a args) errno {
	address, length := a.u32(0), a.u32(1)
	if !s.instance.has(address, uint64(length)) {
		return eFault
	}
	if s.random == nil {
		s.effect("random_get", 32)
		s.random = rand.NewChaCha8(cross(s, func() [32]byte { return s.imports.Seed(s.outside()) }))
	}
	buf := make([]byte, min(length, randomChunk))
	for length > 0 {
		n := min(length, randomChunk)
		s.charge(uint64(n))
		s.random.Read(buf[:n])
		s.copyIn(address, buf[:n])
		address, length = address+n, length-n
	}
	return success
}
