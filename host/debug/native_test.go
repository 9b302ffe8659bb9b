package debug_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/internal/treetest"
)

const prices = `#include <stdio.h>
#include <string.h>

struct rule { int chapter, rate; long cents; };

static struct rule *find(const char *code) {
	static struct rule found;
	int chapter = (code[0] - '0') * 10 + (code[1] - '0');
	found = (struct rule){chapter, 37, 0};
	if (chapter > 50)
		found.rate = 12;
	found.cents = 100 * chapter;
	return &found;
}

static int digits(long n) {
	int sum = 0;
	while (n > 0) {
		sum += n % 10;
		n /= 10;
	}
	return sum;
}

int main(int argc, char **argv) {
	const char *codes[] = {"610910", "420212", "950300"};
	long total = 0;
	for (int i = 0; i < 3; i++) {
		struct rule *r = find(codes[i]);
		long due = r->cents * r->rate / 100;
		if (strlen(codes[i]) != 6)
			return 1;
		total += due;
	}
	return digits(total) == 0;
}
`

// TestThereAndBackInC steps through compiled code in both directions, which stop at the same places,
// although the compiler has mixed the instructions of the lines.
func TestThereAndBackInC(t *testing.T) {
	treetest.Needs(t, "c")
	for _, level := range []string{"-O0", "-O1"} {
		t.Run(level, func(t *testing.T) {
			dir := t.TempDir()
			code, module := filepath.Join(dir, "prices.c"), filepath.Join(dir, "prices.wasm")
			if err := os.WriteFile(code, []byte(prices), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("clang", "--target=wasm32-wasi", "-g", level, "-o", module, code).CombinedOutput(); err != nil {
				t.Fatalf("clang: %v\n%s", err, out)
			}
			own := func(file string) bool { return filepath.Base(file) == "prices.c" }
			s, _, _ := openFile(t, module, `{"args":[],"stdin":""}`, own)
			if _, err := s.Goto(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			there, lines := walk(t, s, debug.Line, false, debug.Ending)
			back, _ := walk(t, s, debug.Line, true, debug.Beginning)
			slices.Reverse(back)
			if !slices.Equal(there, back) || len(there) < 15 {
				t.Errorf("in lines %d:\nthere %d\nback  %d", lines, there, back)
			}
		})
	}
}
