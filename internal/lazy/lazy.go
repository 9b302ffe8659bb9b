// Package lazy makes values when they are first used, which a command that uses none of them would
// otherwise pay for at its start.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles the pattern once.
func Regexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
