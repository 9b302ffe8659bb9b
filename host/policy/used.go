package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/host/internal/wasm"
)

// used is the most that a call of a sandboxed tool used of each limit.
type used struct {
	any        bool // there was such a call
	fuel       uint64
	memory     uint64
	input      uint64
	log        uint64
	effects    Used
	unreadable bool // how many bytes some log had is not known
}

func (u *used) add(use Use) {
	u.any = true
	u.fuel, u.memory = max(u.fuel, use.Meter.Fuel), max(u.memory, use.Meter.PeakMemory)
	u.input = max(u.input, uint64(len(use.Arguments)))
	u.log = max(u.log, uint64(len(use.Meter.Log)))
	u.effects.Calls, u.effects.Bytes = max(u.effects.Calls, use.Effects.Calls), max(u.effects.Bytes, use.Effects.Bytes)
	u.unreadable = u.unreadable || strings.ContainsRune(use.Meter.Log, utf8.RuneError) // which stands for bytes that are no text
}

// limits returns the limits as they stand in a file. A call without fuel or memory
// ended before it began, or its process died, and what it had used is not known.
func (u *used) limits() string {
	if !u.any {
		return ""
	}
	var parts []string
	if u.fuel > 0 {
		parts = append(parts, fmt.Sprintf("fuel: %d", u.fuel))
	}
	if u.memory > 0 {
		parts = append(parts, fmt.Sprintf("memory: %dKiB", wasm.Pages(u.memory)*(wasm.PageSize>>10)))
	}
	parts = append(parts, fmt.Sprintf("input: %d", max(u.input, 1)))
	if !u.unreadable {
		parts = append(parts, fmt.Sprintf("log: %d", max(u.log, 1)))
	}
	parts = append(parts, fmt.Sprintf("effects: %d", max(u.effects.Calls, 1)), fmt.Sprintf("effect_bytes: %d", max(u.effects.Bytes, 1)))
	return "resources:\n  limits: {" + strings.Join(parts, ", ") + "}\n"
}
