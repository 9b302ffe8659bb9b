package rewrite

import "github.com/starling-host/starling/internal/work"

// Check is the gate alone.
func Check(w *work.Budget, b []byte, l Limits) (Info, error) {
	g, err := pass(w, b, l, ImportType)
	if err != nil {
		return Info{}, Malformed(err)
	}
	return g.info, nil
}
