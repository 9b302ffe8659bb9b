// Command command is a WASI command for the tests of package sandbox: it does
// what its input says.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch string(input) {
	case `"fail"`:
		fmt.Fprintln(os.Stderr, "cannot do that")
		os.Exit(7)
	case `"lint"`:
		fmt.Println("  a.py:3: unused import\n\xff")
		os.Exit(1)
	case `"both"`:
		fmt.Print("1c1\n< a")
		fmt.Fprintln(os.Stderr, "they differ")
		os.Exit(2)
	case `"long"`:
		fmt.Print("first" + strings.Repeat(".", 20<<10) + "last")
		os.Exit(1)
	case `"panic"`:
		fmt.Println("it began")
		panic("the command has a bug")
	case `"flood"`:
		fmt.Print(strings.Repeat("x", 2<<20))
	case `"time"`:
		fmt.Printf("%q", time.Now().UTC().Format(time.RFC3339Nano))
	default:
		fmt.Fprintln(os.Stderr, "a note for the log")
		fmt.Printf(`{"args":%q,"input":%s}`, append(os.Args, os.Environ()...), input)
	}
}
