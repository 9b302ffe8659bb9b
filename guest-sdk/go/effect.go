package starling

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

// maxEffectName is the longest name that the host accepts, in bytes.
const maxEffectName = 256

// effectName is the name passed to SideEffect, or "" outside of it. One module
// instance runs one call at a time, so there is one.
var effectName string

// SideEffect calls fn and gives the HTTP exchanges that it makes the name under
// which they are recorded. Without it the name is the method and the URL. The
// name should be stable for the same logical effect, such as "customer/42", and
// never contain values that change between runs. Replay compares the name and
// does not look it up.
//
// The innermost SideEffect counts, and a request that carries a Starling-Effect
// header of its own keeps it. The name belongs to the call and not to a
// goroutine: do not run two SideEffects at once.
//
// The name is 1 to 256 bytes of UTF-8, without control characters and without
// space at its ends. Otherwise fn is not called and the error is an
// [ErrMalformed].
func SideEffect[T any](name string, fn func() (T, error)) (T, error) {
	if !validEffect(name) {
		var zero T
		return zero, malformed("the effect name " + strconv.Quote(name) + " is not 1 to " + strconv.Itoa(maxEffectName) + " bytes of plain text")
	}
	outer := effectName
	effectName = name
	defer func() { effectName = outer }()
	return fn()
}

// validEffect reports whether the host accepts name unchanged.
func validEffect(name string) bool {
	return name != "" && len(name) <= maxEffectName && strings.TrimSpace(name) == name && utf8.ValidString(name) && isFieldValue(name)
}

// nameEffect returns the request with the header field that names the effect,
// if there is a name and the request has no such field.
func nameEffect(request []byte) []byte {
	head, _, _ := bytes.Cut(request, []byte("\r\n\r\n"))
	line, fields, found := bytes.Cut(head, []byte("\r\n"))
	if effectName == "" || !found || hasField(fields, hostcall.EffectHeader) {
		return request
	}
	named := make([]byte, 0, len(request)+len(hostcall.EffectHeader)+len(effectName)+4)
	named = append(named, line...)
	named = append(named, "\r\n"+hostcall.EffectHeader+": "+effectName...)
	return append(named, request[len(line):]...)
}

func hasField(fields []byte, name string) bool {
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		field, _, _ := bytes.Cut(line, []byte(":"))
		if strings.EqualFold(string(field), name) {
			return true
		}
	}
	return false
}
