package sandbox

import (
	"encoding/binary"
)

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
