package egress

import "context"

// search is what looking for secrets in one response takes. Whoever sends a response can
// make it take seconds, so it ends with its context, and others have their turns between.
type search struct {
	ctx  context.Context
	turn func(context.Context) (end func(), err error) // Config.Turn

	work int    // bytes that were compared since the context was asked
	end  func() // gives back the turn; nil without one
	err  error  // why it was given up
}

// workBetween is how many bytes are compared before the context is asked, and before
// another turn is taken: a few milliseconds. Most responses take less, and no turn.
const workBetween = 1 << 20

// goesOn counts bytes that are to be compared, and reports whether they are.
func (s *search) goesOn(bytes int) bool {
	if s.work += bytes; s.work <= workBetween || s.err != nil {
		return s.err == nil
	}
	s.work = 0
	s.rest()
	if s.err = s.ctx.Err(); s.err == nil && s.turn != nil {
		s.end, s.err = s.turn(s.ctx)
	}
	return s.err == nil
}

// rest gives back the turn, if it has one.
func (s *search) rest() {
	if s.end != nil {
		s.end()
	}
	s.end = nil
}
