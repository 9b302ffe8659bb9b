package display

import (
	"fmt"
	"slices"
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

func TestLineDifference(t *testing.T) {
	numbers := func(from, to int) (lines []string) {
		for i := from; i < to; i++ {
			lines = append(lines, fmt.Sprint(i))
		}
		return lines
	}
	text := func(parts ...[]string) string { return strings.Join(slices.Concat(parts...), "\n") }
	large := numbers(0, 3000)
	for _, c := range []struct{ name, a, b, want string }{
		{"equal", "a\nb", "a\nb", ""},
		{"one line", "a", "b", "- a\n+ b"},
		{"a line changed", "a\nb\nc", "a\nB\nc", "  a\n- b\n+ B\n  c"},
		{"a line more", "a\nc", "a\nb\nc", "  a\n+ b\n  c"},
		{"a line less", "a\nb\nc", "b\nc", "- a\n  b\n  c"},
		{"far lines are left out", text(numbers(0, 20)), text(numbers(0, 9), []string{"x"}, numbers(10, 20)),
			"...\n  6\n  7\n  8\n- 9\n+ x\n  10\n  11\n  12"},
		{"two places", text([]string{"a"}, numbers(0, 9), []string{"b"}), text([]string{"A"}, numbers(0, 9), []string{"B"}),
			"- a\n+ A\n  0\n  1\n  2\n...\n  6\n  7\n  8\n- b\n+ B"},
		{"too long to compare", text(large), text(slices.Collect(func(yield func(string) bool) {
			for _, line := range slices.Backward(large) {
				yield(line)
			}
		})), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := LineDifference(c.a, c.b)
			if got := strings.Join(lines, "\n"); c.want != "" && got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if c.a != c.b && len(lines) == 0 {
				t.Error("no difference")
			}
		})
	}
}
