// Package profile turns the calls and returns of a guest's functions into a
// profile of fuel that "go tool pprof" reads.
//
// Fuel is counted and not sampled, so such a profile is exact and the same
// wherever it is made: of a call that was recorded last year on another machine
// it says where every unit went. Whoever executes the guest reports each entry
// of a function and each return with the fuel spent until then ([Call]); the
// fuel between two reports belongs to the function that ran in between.
//
//	p := profile.New("dice", module.FuncName)
//	c := p.Call(map[string]string{"tool": "dice"})
//	c.Enter(17, 0)
//	c.Leave(120)
//	c.End(120)
//	err := p.Write(file)
//
// What a guest does decides how many stacks there are and how deep, so both are
// bounded. What is beyond keeps its function and loses its callers: it stands
// below the frame [Beyond].
package profile
