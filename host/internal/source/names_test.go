package source

import (
	"strings"
	"testing"
)

func TestRustNamesAreReadable(t *testing.T) {
	for mangled, want := range map[string]string{
		"_ZN4core3fmt5write17h0123456789abcdefE":                                                       "core::fmt::write",
		"_ZN8dlmalloc8dlmalloc5Chunk4size17h0123456789abcdefE":                                         "dlmalloc::dlmalloc::Chunk::size",
		"_ZN61_$LT$dlmalloc..sys..System$u20$as$u20$dlmalloc..Allocator$GT$5alloc17h0123456789abcdefE": "_<dlmalloc::sys::System as dlmalloc::Allocator>::alloc",
		"main.main":                       "main.main",
		"_ZN3foo3barE":                    "_ZN3foo3barE", // C++
		"_ZN99999999999999999999foo":      "_ZN99999999999999999999foo",
		"_ZN3fo":                          "_ZN3fo",
		"_ZN1a17h0123456789abcdeE":        "_ZN1a17h0123456789abcdeE",
		"_ZN1a5$u9z$17h0123456789abcdefE": "a::$u9z$",
	} {
		if got := Readable(mangled); got != want {
			t.Errorf("%s: %s, want %s", mangled, got, want)
		}
	}
	if hostile := "_ZN" + strings.Repeat("1a", 1<<20); Readable(hostile) != hostile {
		t.Error("a name without an end was read")
	}
}
