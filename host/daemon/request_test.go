package daemon

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// TestReadAll: a body arrives whole whatever its sender says of its size, and what is
// said costs no more than a megabyte before it has come.
func TestReadAll(t *testing.T) {
	for _, n := range []int{0, 1, trusted - 1, trusted, trusted + 1, 3 * trusted} {
		want := bytes.Repeat([]byte("body"), n)[:n]
		for _, size := range []int64{-1, int64(n)} {
			got, err := readAll(iotest.HalfReader(bytes.NewReader(want)), size)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes said to be %d: %d came, %v", n, size, len(got), err)
			}
			if size > trusted && cap(got) > n+trusted {
				t.Errorf("%d bytes take %d", n, cap(got))
			}
		}
	}
	ends := io.MultiReader(bytes.NewReader(make([]byte, 100)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if got, err := readAll(ends, 1<<40); !errors.Is(err, io.ErrUnexpectedEOF) || cap(got) > trusted {
		t.Errorf("a body that ends early: %d bytes set aside, %v", cap(got), err)
	}
}
