package image

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLadder opens the best store, and logs why it is not a better one.
func TestLadder(t *testing.T) {
	s, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	report := s.Report()
	for n, rung := range report {
		if last := n == len(report)-1; (rung.Err == nil) != last || rung.Method != Methods()[n] {
			t.Errorf("rung %d is %s: %v", n, rung.Method, rung.Err)
		}
	}
	if s.Method() != report[len(report)-1].Method {
		t.Errorf("in use is %s", s.Method())
	}
	t.Logf("reset by %s", s.Method())
}

func TestFreshWorksEverywhere(t *testing.T) {
	s, err := Open(Fresh)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	contents := []byte("contents")
	i, err := s.New(uint64(len(contents)), 1<<16, Pieces(contents))
	if err != nil || i.Mapped() {
		t.Fatal(err)
	}
	contents[0] = 'x'
	if string(i.Contents()) != "contents" {
		t.Errorf("the image is %q", i.Contents())
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open("magic"); err == nil || !strings.Contains(err.Error(), `"magic"`) {
		t.Errorf("got %v", err)
	}
	s, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.New(8192, 4096, Pieces(nil)); err == nil {
		t.Error("an image larger than its limit was made")
	}
}

func TestPiecesAreAllThatIsNotZero(t *testing.T) {
	page := os.Getpagesize()
	rapid.Check(t, func(t *rapid.T) {
		contents := make([]byte, rapid.IntRange(0, 9*page).Draw(t, "bytes"))
		for _, at := range rapid.SliceOfN(rapid.IntRange(0, 9*page), 0, 6).Draw(t, "written") {
			if at < len(contents) {
				contents[at] = 1
			}
		}
		got, last := make([]byte, len(contents)), -1
		for at, b := range Pieces(contents) {
			if int(at) <= last || int(at)%page != 0 || zero(b[:min(page, len(b))]) || zero(b[(len(b)-1)/page*page:]) {
				t.Errorf("a piece of %d bytes at %#x, after %#x", len(b), at, last)
			}
			last = int(at) + len(b)
			copy(got[at:], b)
		}
		if !bytes.Equal(got, contents) {
			t.Errorf("the pieces are not the contents")
		}
	})
}
