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

// names are the values of one label that are the names of something.
type names struct {
	mu    sync.RWMutex
	known map[string]string // who has taken each; guarded by mu
}

// share is what somebody may take of names.
type share struct {
	*names
	owner string
	most  int
}

func newNames() share { return share{&names{known: map[string]string{}}, "", MaxNames} }

// know adds names as long as there is room.
func (s share) know(all []string) {
	for _, name := range all {
		s.label(name, true)
	}
}

// label returns the name if it has a label of its own, or if it is real and
// there is room for it, and "other" if not.
func (s share) label(name string, real bool) string {
	s.mu.RLock()
	_, known := s.known[name]
	s.mu.RUnlock()
	if known || real && s.add(name) {
		return name
	}
	return other
}

func (s share) add(name string) bool {
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.known[name]; known {
		return true
	}
	if len(s.known) >= MaxNames || s.taken() >= s.most {
		return false
	}
	s.known[name] = s.owner
	return true
}

// taken counts the names of the owner. The caller holds mu.
func (s share) taken() int {
	n := 0
	for _, owner := range s.known {
		if owner == s.owner {
			n++
		}
	}
	return n
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
