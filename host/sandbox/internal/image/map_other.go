//go:build !linux

package image

import (
	"errors"
	"iter"
)

var errUnsupported = errors.New("this system cannot map an immutable file in memory")

// regions has nothing to keep here.
type regions struct{}

func (s *Store) try() error {
	if s.method == Fresh {
		return nil
	}
	return errUnsupported
}

func (*Image) fill(int, iter.Seq2[uint32, []byte]) error { return errUnsupported }

// Close lets go of the image.
func (i *Image) Close() error {
	i.contents = nil
	return nil
}

// Map fails: this system has no mapped memories.
func (*Image) Map() (*Memory, error) { return nil, errUnsupported }

// Reset fails: there is no memory to reset.
func (*Memory) Reset(uint64) error { return errUnsupported }

// Free does nothing.
func (*Memory) Free() {}
