package image

import (
	"errors"
	"fmt"
	"iter"
	"os"
)

// Method is a way to give every call a memory that equals the image.
type Method string

// The methods, from the best to the one that works everywhere.
const (
	Scan    Method = "pagemap-scan"
	Compare Method = "compare"
	Fresh   Method = "fresh"
)

// Methods returns the ladder, the best first.
func Methods() []Method { return []Method{Scan, Compare, Fresh} }

// Rung is one step of the ladder on this machine.
type Rung struct {
	Method Method
	Err    error // why it does not work here; nil for the one in use
}

// Store makes images by one method. It is safe for concurrent use.
type Store struct {
	method  Method
	report  []Rung
	pagemap *os.File // of this process; nil for a method that does not need it
}

// Open returns a store that uses the given method, or the best one that works
// here if it is empty. A named method that does not work is an error.
func Open(want Method) (*Store, error) {
	s := &Store{}
	for _, method := range Methods() {
		if want != "" && method != want {
			continue
		}
		s.method = method
		err := s.try()
		s.report = append(s.report, Rung{method, err})
		if err == nil {
			return s, nil
		}
	}
	if len(s.report) == 0 {
		return nil, fmt.Errorf("image: unknown method %q: want one of %q", want, Methods())
	}
	return nil, errors.Join(fmt.Errorf("image: %s: %w", want, s.report[0].Err), s.Close())
}

// Method returns the method in use.
func (s *Store) Method() Method { return s.method }

// Report returns the rungs that were tried; the last one is in use.
func (s *Store) Report() []Rung { return s.report }

// Close frees what the store needs to reset memories. Its images and memories
// must not be used afterwards.
func (s *Store) Close() error {
	if s.pagemap == nil {
		return nil
	}
	return s.pagemap.Close()
}

// Image is the contents that the memories of a module begin with.
type Image struct {
	store    *Store
	contents []byte // never written; read-only for mapped methods
	limit    int    // bytes of a memory's reservation
	fd       int    // of the file in memory; -1 without one
}

// New makes an image of length bytes, which are copies of the pieces, by their offsets, and
// zero between them. Its memories can grow to limit bytes. Both lengths are multiples of the
// system's page size.
func (s *Store) New(length, limit uint64, pieces iter.Seq2[uint32, []byte]) (*Image, error) {
	i := &Image{store: s, limit: int(limit), fd: -1}
	if limit < length {
		return nil, fmt.Errorf("image: contents of %d bytes, more than the limit of %d", length, limit)
	}
	for offset, b := range pieces {
		if uint64(offset)+uint64(len(b)) > length {
			return nil, fmt.Errorf("image: %d bytes at %#x are outside of the %d bytes of the image", len(b), offset, length)
		}
	}
	if s.method == Fresh {
		i.contents = make([]byte, length)
		for offset, b := range pieces {
			copy(i.contents[offset:], b)
		}
		return i, nil
	}
	if err := i.fill(int(length), pieces); err != nil {
		return nil, errors.Join(fmt.Errorf("image: %w", err), i.Close())
	}
	return i, nil
}

// Pieces returns the parts of contents that are not zero, as runs of whole pages.
func Pieces(contents []byte) iter.Seq2[uint32, []byte] {
	return func(yield func(uint32, []byte) bool) {
		page := os.Getpagesize()
		begin := 0
		for at := 0; at < len(contents); at += page {
			end := min(at+page, len(contents))
			empty := zero(contents[at:end])
			if empty {
				end = at
			}
			if (empty || end == len(contents)) && begin < end && !yield(uint32(begin), contents[begin:end]) {
				return
			}
			if empty {
				begin = at + page
			}
		}
	}
}

// Contents returns the image's bytes. They must not be written, nor read after
// Close.
func (i *Image) Contents() []byte { return i.contents }

// Mapped reports whether Map works: whether the method is not Fresh.
func (i *Image) Mapped() bool { return i.store.method != Fresh }
