package interp

// A program in a browser carries no interpreters.
var (
	JavaScript, Python *Builtin
	Tools              map[string]*Builtin
)
