package image

import (
	"strings"
	"testing"
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
	i, err := s.Seal(contents, 1<<16)
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
	if _, err := s.Seal(make([]byte, 8192), 4096); err == nil {
		t.Error("an image larger than its limit was sealed")
	}
}
