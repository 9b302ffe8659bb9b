package program

// Path returns the file of the program that this process runs. It differs from the file
// under its name after an upgrade.
func Path() (string, error) { return "/proc/self/exe", nil }
