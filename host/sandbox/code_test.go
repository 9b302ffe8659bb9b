package sandbox

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// sized records the longest requested read.
type sized struct {
	*bytes.Reader
	longest int
}

func (s *sized) Read(p []byte) (int, error) {
	s.longest = max(s.longest, len(p))
	return s.Reader.Read(p)
}

// WriteTo would hand over everything at once.
func (s *sized) WriteTo(w io.Writer) (int64, error) {
	s.longest = s.Len()
	return s.Reader.WriteTo(w)
}

// TestCodeIsWrittenInPieces, also when its source could write it at once.
func TestCodeIsWrittenInPieces(t *testing.T) {
	code := bytes.Repeat([]byte("code "), piece)
	path := filepath.Join(t.TempDir(), "code")
	from := &sized{Reader: bytes.NewReader(code)}
	if err := writePieces(path, from); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, code) {
		t.Errorf("%d bytes of %d were written: %v", len(got), len(code), err)
	}
	if from.longest > piece {
		t.Errorf("%d bytes are written at once, want %d", from.longest, piece)
	}
	if err := writePieces(path, from); err == nil {
		t.Error("a file that is there is written over")
	}
}
