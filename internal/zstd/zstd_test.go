package zstd

import (
	"bytes"
	"strings"
	"testing"
)

func TestFramesBecomeTheirBytesAgain(t *testing.T) {
	for _, text := range []string{"", "a", strings.Repeat("a word and ", 100_000)} {
		frame := Compress([]byte(text))
		if !Is(frame) || len(text) > 100 && len(frame) > len(text)/100 {
			t.Errorf("%d bytes became a frame of %d, %x", len(text), len(frame), frame[:4])
		}
		if got, err := Decompress(frame, max(len(text), 1)); err != nil || string(got) != text {
			t.Errorf("a frame of %d bytes became %d, %v", len(text), len(got), err)
		}
	}
	if Is([]byte("\x00asm\x01\x00\x00\x00")) {
		t.Error("a module is a frame")
	}
}

func TestFramesThatAreRefused(t *testing.T) {
	bomb := Compress(make([]byte, 64<<20))
	if len(bomb) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	// The header of a frame: its size is not declared, its window has 1 MiB; then come raw blocks.
	undeclared := append([]byte("\x28\xb5\x2f\xfd\x00\x50"), bytes.Repeat([]byte("\x82\x00\x01\x00"), 64)...)
	for what, frame := range map[string][]byte{"a bomb": bomb, "a bomb without a size": undeclared, "a module": []byte("\x00asm"), "nothing": nil, "a cut frame": Compress([]byte("text"))[:8]} {
		if got, err := Decompress(frame, 1<<16); err == nil && len(got) > 0 {
			t.Errorf("%s became %d bytes", what, len(got))
		}
	}
}
