package source

import (
	"strconv"
	"strings"

	"github.com/starling-host/starling/internal/lazy"
)

var rustEscape = lazy.Regexp(`\$([A-Za-z0-9]+)\$`)

// rustEscapes are the escapes of rustc's legacy mangling that are no code points.
var rustEscapes = map[string]string{"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}

// Readable returns a function's name as its author wrote it, for names that rustc has mangled
// (_ZN4core3fmt5write17h0123456789abcdefE is core::fmt::write), and any other name as it is. The
// libraries that know more manglings take time without bound for names that a module chooses.
func Readable(name string) string {
	rest, ok := strings.CutPrefix(name, "_ZN")
	if !ok {
		return name
	}
	var path []string
	for rest != "E" && rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n > len(rest)-digits {
			return name
		}
		path, rest = append(path, rest[digits:digits+n]), rest[digits+n:]
	}
	last := len(path) - 1
	if rest != "E" || last < 1 || len(path[last]) != 17 || path[last][0] != 'h' { // the hash: without it this is C++
		return name
	}
	text := strings.ReplaceAll(strings.Join(path[:last], "::"), "..", "::")
	return rustEscape().ReplaceAllStringFunc(text, func(escape string) string {
		escape = strings.Trim(escape, "$")
		if code, err := strconv.ParseUint(strings.TrimPrefix(escape, "u"), 16, 21); err == nil && escape[0] == 'u' {
			return string(rune(code))
		}
		if is, ok := rustEscapes[escape]; ok {
			return is
		}
		return "$" + escape + "$"
	})
}
