package source

import (
	"strings"
	"testing"
)

// TestAddressOfVariables: watch, x, last-write and their requests over DAP ask NotInMemory, whatever
// the address says: 0 is a place in memory, too.
func TestAddressOfVariables(t *testing.T) {
	for want, v := range map[string]Variable{
		"":                               {Value: "7", Address: 16, Size: 4},
		" ":                              {Value: "7", Size: 4}, // at address 0
		"n is <optimized out> here":      {Value: optimizedOut},
		"n has no address: it is in a l": {Value: "7"},
		"n has no address":               {Value: "7", Address: 16},
	} {
		err := v.NotInMemory("n")
		if want = strings.TrimSpace(want); (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v", v, err)
		}
	}
}
