package interp

// Tools is empty: a program in a browser carries no interpreters.
var Tools map[string]*Builtin
