package observe

import (
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/budget"
)

// MaxNames is how many tools, and how many models, have a label of their own.
const MaxNames = 100

// maxNameBytes bounds one name, in a label and in an attribute.
const maxNameBytes = 128

// names are the values of one label that are the names of something. The zero
// value has none.
type names struct {
	mu    sync.RWMutex
	known map[string]struct{} // guarded by mu
}

// know adds names as long as there is room.
func (n *names) know(all []string) {
	for _, name := range all {
		n.label(name, true)
	}
}

// label returns the name if it has a label of its own, or if it is real and
// there is room for it, and "other" if not.
func (n *names) label(name string, real bool) string {
	n.mu.RLock()
	_, known := n.known[name]
	n.mu.RUnlock()
	if known || real && n.add(name) {
		return name
	}
	return other
}

func (n *names) add(name string) bool {
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.known[name]; known {
		return true
	}
	if len(n.known) >= MaxNames {
		return false
	}
	if n.known == nil {
		n.known = make(map[string]struct{})
	}
	n.known[name] = struct{}{}
	return true
}

// oneOf returns value if it is in the set, and "other" if not.
func oneOf(value string, set []string) string {
	if slices.Contains(set, value) {
		return value
	}
	return other
}

var (
	statuses = []string{statusOK, statusError, statusCancelled}
	axes     = []string{
		budget.InputTokens, budget.OutputTokens, budget.USD, budget.WallClock, budget.Fuel, budget.Effects, budget.EgressBytes,
	}
)

func statusLabel(status string) string { return oneOf(status, statuses) }
func axisLabel(axis string) string     { return oneOf(axis, axes) }

func errorLabel(errorType string) string {
	if errorType == "" {
		return none
	}
	return oneOf(errorType, errorTypes)
}

// kindLabel lets the name of a kind through.
func kindLabel(name string) string {
	for k := event.Kind(1); k.Valid(); k++ {
		if k.String() == name {
			return name
		}
	}
	return other
}
