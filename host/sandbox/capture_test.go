package sandbox

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCaptureKeepsTheBeginningAndTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := capture{limit: uint64(rapid.IntRange(0, 4000).Draw(t, "limit"))}
		var all []byte
		for _, p := range rapid.SliceOfN(rapid.SliceOfN(rapid.ByteRange('a', 'z'), 0, 3000), 0, 12).Draw(t, "writes") {
			c.write(p)
			all = append(all, p...)
		}
		if got, want := c.text(), string(all[:min(len(all), int(c.limit))]); got != want {
			t.Fatalf("text has %d bytes, want %d", len(got), len(want))
		}
		got := c.excerpt()
		if !strings.HasSuffix(got, string(all[max(0, len(all)-excerptTail):])) {
			t.Fatal("the excerpt does not end with the log's end")
		}
		if c.limit >= excerptHead && !strings.HasPrefix(got, string(all[:min(len(all), excerptHead)])) {
			t.Fatal("the excerpt does not begin with the log's beginning")
		}
		if len(all) <= excerptHead && got != string(all) {
			t.Fatal("the excerpt of a short log is not the log")
		}
	})
}

func TestCaptureIsValidAndWithinItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := capture{limit: uint64(rapid.IntRange(0, 50).Draw(t, "limit"))}
		c.write(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if text := c.text(); !utf8.ValidString(text) || uint64(len(text)) > c.limit {
			t.Fatalf("%q with limit %d", text, c.limit)
		}
	})
}

func TestCaptureReplacesWhatIsNotText(t *testing.T) {
	c := capture{limit: 10}
	c.write([]byte("ab\xff\xfecd\xe2\x82"))
	if got := c.text(); got != "ab\uFFFDcd\uFFFD" {
		t.Errorf("%q", got)
	}
	c = capture{limit: 4}
	c.write([]byte("abc\xffd"))
	if got := c.text(); got != "abc" {
		t.Errorf("%q: half a replacement was kept", got)
	}
}
