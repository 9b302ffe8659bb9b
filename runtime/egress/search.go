package egress

import (
	"context"
	"time"
)

// search is what looking for secrets in one response takes. Whoever sends a response can
// make it take seconds, so it ends with its context, and others have their turns between.
type search struct {
	ctx  context.Context
	turn func(context.Context) (end func(), err error) // Config.Turn

	work  int       // bytes that were compared since somebody looked at the clock
	since time.Time // the beginning of the turn, or of the search
	end   func()    // gives back the turn; nil without one
	err   error     // why it was given up
}

const (
	// turnTime is how long a search takes before it has to have another turn. Most
	// take less, and none.
	turnTime = time.Millisecond

	// lookEvery is how many bytes are compared before somebody looks at the clock, which
	// takes a tenth of a millisecond or so.
	lookEvery = 1 << 14

	// preparing is how many bytes could be compared while a byte of a secret is
	// prepared for.
	preparing = 64
)

// newSearch returns a search that begins now. Who has made it calls rest in the end.
func newSearch(ctx context.Context, turn func(context.Context) (func(), error)) *search {
	return &search{ctx: ctx, turn: turn, since: time.Now()}
}

// goesOn counts bytes that are to be compared, and reports whether they are.
func (s *search) goesOn(bytes int) bool {
	if s.work += bytes; s.work <= lookEvery || s.err != nil {
		return s.err == nil
	}
	s.work = 0
	if time.Since(s.since) > turnTime {
		s.again()
	}
	return s.err == nil
}

// again ends the turn and takes another one, which is when it is asked whether anybody
// still waits for the response.
func (s *search) again() {
	s.rest()
	if s.err = s.ctx.Err(); s.err == nil && s.turn != nil {
		s.end, s.err = s.turn(s.ctx)
	}
	s.since = time.Now()
}

// rest gives back the turn, if it has one.
func (s *search) rest() {
	if s.end != nil {
		s.end()
	}
	s.end = nil
}
