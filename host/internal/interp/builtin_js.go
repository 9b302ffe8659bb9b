package interp

// A program in a browser carries no interpreters.
var (
	JavaScript *Builtin
	Tools      map[string]*Builtin
)
