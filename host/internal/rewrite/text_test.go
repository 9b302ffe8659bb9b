package rewrite

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func specText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../spec/determinism.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTextHasTheLimits holds the table of limits in spec/determinism.md and the
// defaults together.
func TestTextHasTheLimits(t *testing.T) {
	text := specText(t)
	limits := reflect.ValueOf(DefaultLimits())
	for i := range limits.NumField() {
		row := fmt.Sprintf("| `%s` | %v |", limits.Type().Field(i).Name, limits.Field(i))
		if !strings.Contains(text, row) {
			t.Errorf("spec/determinism.md has no row %s", row)
		}
	}
}

// TestTextHasThePrices does the same for the cost table.
func TestTextHasThePrices(t *testing.T) {
	text := specText(t)
	for _, row := range []string{
		fmt.Sprintf("cost table version %d", CostTableVersion),
		fmt.Sprintf("| entry of a function | %d |", costEntry),
		fmt.Sprintf("| `call` of a function of the module | %d |", costCall),
		fmt.Sprintf("| `call` of an imported function | %d |", costImport),
		fmt.Sprintf("| `call_indirect` | %d |", costIndirect),
		fmt.Sprintf("| integer `div`, `rem` | %d |", costDivide),
		fmt.Sprintf("| float `div`, `sqrt` | %d |", costFloatSlow),
		fmt.Sprintf("| `memory.copy`, `memory.fill` | %d, and 1 for each %d bytes |", costBulk, bytesPerUnit),
		fmt.Sprintf("| `memory.grow` | %d, and %d for each page", costGrow, costPage),
		fmt.Sprintf("cost at most %d units", leafCost),
		fmt.Sprintf("at most %d parameters and locals", leafLocals),
		fmt.Sprintf("S is %s or more", thousands(checkEvery)),
		fmt.Sprintf("it is at least %s", thousands(checkEvery-afterCall)),
		fmt.Sprintf("%s + %s units", thousands(checkEvery), thousands(DefaultDepth)),
		fmt.Sprintf("A frame has %d slots", slotsBase),
	} {
		if !strings.Contains(text, row) {
			t.Errorf("spec/determinism.md does not say %q", row)
		}
	}
}

// thousands writes a number below a million as the text does.
func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
