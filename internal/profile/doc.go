// Package profile turns the calls and returns of a guest's functions into a
// profile of fuel that "go tool pprof" reads.
//
// Fuel is counted and not sampled, so such a profile is exact and the same on every machine: it
// attributes every unit of a call that was recorded last year elsewhere. The program that executes
// the guest reports each entry of a function and each return with the fuel spent until then
// ([Call]). The fuel between two reports belongs to the function that ran in between.
//
//	p := profile.New("dice.wasm", names)
//	c := p.Call("dice")
//	c.Enter(17, 0)
//	c.Leave(120)
//	c.End(120)
//	err := p.Write(file)
//
// The guest determines the number and depth of stacks, so both are bounded. Beyond a bound, a
// function loses its callers and is shown below the frame [Beyond].
package profile
