package sandbox

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/display"
)

// String describes the call in one line, without its fuel. It is printable.
func (ev TraceEvent) String() string {
	var params []string
	for _, p := range ev.Params {
		params = append(params, parameter(p))
	}
	name := strings.TrimPrefix(ev.Function, abi.WASIModule+".")
	line := fmt.Sprintf("%s(%s)", name, strings.Join(params, ", "))
	if !ev.Returned {
		return line + " ended the call"
	}
	line += " = " + traceResult(name, ev.Result)
	if detail := effectDetail(name, ev); detail != "" {
		line += "  " + detail
	}
	return line
}

// traceResult is signed, because most functions say with a negative number that
// they failed. Random bits do not.
func traceResult(name string, result uint64) string {
	if name == abi.Version+"."+abi.ImportRandom {
		return fmt.Sprint(result)
	}
	return fmt.Sprint(int64(result))
}

// parameter writes an address as one and a small number as a number.
func parameter(v uint64) string {
	if v < 1<<12 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%#x", v)
}

// mostDetail bounds what a line shows of a text.
const mostDetail = 120

// effectDetail describes the input and output of an effect.
func effectDetail(name string, ev TraceEvent) string {
	switch name {
	case abi.Version + "." + abi.ImportNow:
		return time.Unix(0, int64(ev.Result)).UTC().Format(time.RFC3339Nano)
	case abi.Version + "." + abi.ImportHTTP:
		return firstLine(ev.In) + " -> " + firstLine(ev.Out)
	case "fd_write":
		return firstLine(ev.In)
	case "clock_time_get":
		if len(ev.Out) == 8 {
			return fmt.Sprintf("%dns", binary.LittleEndian.Uint64(ev.Out))
		}
	case "random_get":
		return fmt.Sprintf("%x", ev.Out[:min(len(ev.Out), 16)])
	}
	return ""
}

// firstLine returns the first line of a text, and the length of all of it.
func firstLine(text []byte) string {
	if len(text) == 0 {
		return "nothing"
	}
	first, _, more := strings.Cut(string(text[:min(len(text), mostDetail)]), "\n")
	quoted := `"` + display.Printable(strings.TrimRight(first, "\r")) + `"`
	if more || len(text) > mostDetail {
		quoted += fmt.Sprintf(" (%s)", display.Plural(len(text), "byte"))
	}
	return quoted
}
