package program

// Path returns the file of the program that this process runs. That is another one than
// the one under its name when that was replaced by an upgrade.
func Path() (string, error) { return "/proc/self/exe", nil }
