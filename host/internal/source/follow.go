package source

// Follower follows the calls of a script while the interpreter executes it.
type Follower struct {
	Table  *Table
	Walked int // frames that all looks have read; a hostile module has 131,072 for each

	Wrote    uint32 // of the addresses that Look returned, the one that was written since, if known
	Function uint32 // the frame of the innermost function of the script, at the last look

	// Called and Resumed report that since the look before the innermost function has begun, or another
	// one has continued it after it suspended itself.
	Called, Resumed bool

	frame   uint32 // the innermost at the last look, also of a function that is not of the script
	looked  bool   // there was a look before
	caller  uint32 // of it
	fresh   bool   // it has been called, and has not said yet where it is
	was     uint32 // what its frame says instead
	between int    // looks since, in the middle of a call
}

// Look returns the place of the innermost call and how many there are, as [Table.Innermost], or false
// while the interpreter calls or returns: it has replaced the innermost frame and not yet linked it to its
// caller, or the other way round. Look again after a write to the words at the addresses: they change
// whenever the interpreter calls or returns, and with most operations that can fail.
func (f *Follower) Look(memory []byte) (at Place, depth int, addresses [3]uint32, ok bool) {
	in, frame := f.Table.interpreter(memory, nil)
	if in == nil {
		return at, 0, addresses, false
	}
	addresses = in.words(frame)
	for caller, n := frame, 0; caller != 0 && n < mostCalls; n++ {
		caller = in.caller(caller)
		f.Walked++
	}
	called := f.looked && frame != f.frame && in.caller(frame) == f.frame
	linked := !f.looked || frame == f.frame && in.caller(frame) == f.caller || called || frame == f.caller
	for caller, n := f.frame, 0; !linked && caller != 0 && n < mostCalls; n++ { // it may have returned
		caller = in.caller(caller)
		linked = caller == frame
		f.Walked++
	}
	if f.between++; !linked && f.between <= len(addresses) {
		return at, 0, addresses, false
	}
	says := bytesOf(memory).u32(addresses[1])
	resumed := called && in.suspended(frame)
	f.Resumed = resumed && f.frame != 0
	f.Called, f.looked = called && !resumed && in.code(frame) != 0, true
	f.fresh = f.Called || f.fresh && frame == f.frame && f.Wrote != addresses[1] && says == f.was
	f.was = says
	f.frame, f.caller, f.between = frame, in.caller(frame), 0
	calls, depth := f.Table.calls(memory, nil, true, f.fresh)
	if len(calls) > 0 {
		at, f.Function = calls[0].Place, calls[0].frame
	}
	return at, depth, addresses, true
}

// Stack returns the frames of the calls of the script. That of a generator or an async function is the
// same whenever it runs.
func (t *Table) Stack(memory []byte) (all []uint32) {
	in, frame := t.interpreter(memory, nil)
	for ; frame != 0 && len(all) < mostCalls; frame = in.caller(frame) {
		all = append(all, frame)
	}
	return all
}
