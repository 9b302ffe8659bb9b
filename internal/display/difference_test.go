package display

import (
	"strings"
	"testing"
)

func TestAroundDifference(t *testing.T) {
	long := strings.Repeat("0123456789", 20)
	for _, c := range []struct{ name, a, b, partA, partB, under string }{
		{"in the middle", "customer/41 x", "customer/42 x", "customer/41 x", "customer/42 x", "1"},
		{"at the beginning", "a", "b", "a", "b", "a"},
		{"one text ends early", "abc", "abcd", "abc", "abcd", ""},
		{"nothing on one side", "", "x", "", "x", ""},
		{"equal texts have no column", "abc", "abc", "abc", "abc", "none"},
		{"far into a long text", long + "A" + long, long + "B" + long,
			"..." + long[len(long)-32:] + "A" + long[:60] + "...", "..." + long[len(long)-32:] + "B" + long[:60] + "...", "A"},
		{"control characters before it", "\x1b[31m1", "\x1b[31m2", `\x1b[31m1`, `\x1b[31m2`, "1"},
		{"letters that look alike", "p\u0430y", "pay", `p\u0430y`, "pay", `\`},
		{"two bytes of one letter", "\u00e9", "\u00e8", `\u00e9`, `\u00e8`, `\`},
		{"bytes that are not UTF-8", "a\xfe", "a\xff", `a\xfe`, `a\xff`, `\`},
		{"a byte that is not UTF-8 and the character that stands for it", "a\xfe", "a\ufffd", `a\xfe`, `a\ufffd`, `\`},
	} {
		t.Run(c.name, func(t *testing.T) {
			partA, partB, column := AroundDifference(c.a, c.b)
			if partA != c.partA || partB != c.partB {
				t.Errorf("got\n%s\n%s, want\n%s\n%s", partA, partB, c.partA, c.partB)
			}
			under := "none"
			if column >= 0 {
				under = partA[column:min(column+1, len(partA))]
			}
			if under != c.under {
				t.Errorf("the caret is under %q, want %q", under, c.under)
			}
		})
	}
}

func FuzzAroundDifference(f *testing.F) {
	f.Add("abc\x1b", "abd\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		partA, partB, column := AroundDifference(a, b)
		if (column < 0) != (a == b) {
			t.Fatalf("column %d for %q and %q", column, a, b)
		}
		if column > len(partA) || column > len(partB) {
			t.Errorf("the caret at %d is beyond %q or %q", column, partA, partB)
		}
		if column >= 0 && partA[:column] != partB[:column] {
			t.Errorf("%q and %q differ before the caret", partA, partB)
		}
		if longest := max(len(partA), len(partB)); longest > 4*diffWidth {
			t.Errorf("%d characters are shown", longest)
		}
	})
}
