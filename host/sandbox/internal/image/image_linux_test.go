package image

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// onEveryRung runs a test with each method that maps memory.
func onEveryRung(t *testing.T, f func(t *testing.T, s *Store)) {
	for _, method := range []Method{Scan, Compare} {
		t.Run(string(method), func(t *testing.T) {
			s, err := Open(method)
			if err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
			defer s.Close()
			f(t, s)
		})
	}
}

func newImage(t testing.TB, s *Store, contents []byte, limit int) *Image {
	t.Helper()
	i, err := s.New(uint64(len(contents)), uint64(limit), Pieces(contents))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}

func mapped(t testing.TB, i *Image) *Memory {
	t.Helper()
	m, err := i.Map()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// pattern is an image in which every third page is a hole.
func pattern(pages int) []byte {
	b := make([]byte, pages*os.Getpagesize())
	for i := range b {
		if i/os.Getpagesize()%3 != 0 {
			b[i] = byte(i*7 + i>>8)
		}
	}
	return b
}

// TestResetLeavesNothing writes and reads anywhere, grows, resets, and finds
// the image again: in place, grown into, after it, few pages and many.
func TestResetLeavesNothing(t *testing.T) {
	onEveryRung(t, func(t *testing.T, s *Store) {
		page := os.Getpagesize()
		i := newImage(t, s, pattern(48), 1024*page)
		m := mapped(t, i)
		rapid.Check(t, func(t *rapid.T) {
			size := rapid.SampledFrom([]int{48, 49, 64, 300, 1024}).Draw(t, "pages") * page
			b := m.Reallocate(uint64(48 * page))
			if !bytes.Equal(b, i.Contents()) {
				t.Fatal("the memory does not begin as the image")
			}
			b = m.Reallocate(uint64(size))
			for range rapid.IntRange(0, 40).Draw(t, "accesses") {
				at := rapid.IntRange(0, size-1).Draw(t, "at")
				switch rapid.SampledFrom([]string{"read", "write", "fill"}).Draw(t, "kind") {
				case "read":
					_ = b[at]
				case "write":
					b[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
				case "fill":
					for j := range b[at:min(size, at+20*page)] {
						b[at+j] = 0xa5
					}
				}
			}
			if err := m.Reset(0); err != nil {
				t.Fatal(err)
			}
			if err := m.Verify(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestImageDropsLargeMemory checks that memory a guest has written beyond a megabyte
// is not kept for the next call.
func TestImageDropsLargeMemory(t *testing.T) {
	onEveryRung(t, func(t *testing.T, s *Store) {
		const size = 64 << 20
		m := mapped(t, newImage(t, s, pattern(3), size))
		b := m.Reallocate(size)
		for at := 0; at < size; at += 512 {
			b[at] = 1
		}
		if got := resident(t, b); got != size/os.Getpagesize() {
			t.Fatalf("%d pages are there after all were written", got)
		}
		if err := m.Reset(0); err != nil {
			t.Fatal(err)
		}
		if got := resident(t, b[4*os.Getpagesize():]); got > maxCopied/os.Getpagesize() {
			t.Errorf("%d pages are still there", got)
		}
		if err := m.Verify(); err != nil {
			t.Fatal(err)
		}
	})
}

// resident counts the pages of b that are in memory.
func resident(t *testing.T, b []byte) int {
	t.Helper()
	there := make([]byte, len(b)/os.Getpagesize())
	if err := mincore(b, there); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range there {
		n += int(v & 1)
	}
	return n
}

// TestSwappedPagesAreReset makes the kernel move written pages out of memory:
// they still count as written.
func TestSwappedPagesAreReset(t *testing.T) {
	onEveryRung(t, func(t *testing.T, s *Store) {
		page := os.Getpagesize()
		m := mapped(t, newImage(t, s, pattern(8), 16*page))
		b := m.Reallocate(uint64(16 * page))
		for at := range b {
			b[at] = 0x77
		}
		// Without a swap device nothing moves, and the test is TestResetLeavesNothing.
		if err := unix.Madvise(b, unix.MADV_PAGEOUT); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
		if err := m.Reset(0); err != nil {
			t.Fatal(err)
		}
		if err := m.Verify(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMemoriesAreApart writes into one memory of an image and reads another.
func TestMemoriesAreApart(t *testing.T) {
	onEveryRung(t, func(t *testing.T, s *Store) {
		page := os.Getpagesize()
		i := newImage(t, s, pattern(4), 8*page)
		a, b := mapped(t, i), mapped(t, i)
		clear(a.Reallocate(uint64(8 * page)))
		a.bytes[5*page] = 9
		if err := b.Verify(); err != nil {
			t.Error(err)
		}
		if _, err := unix.Pwrite(i.fd, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("writing the file in memory: %v", err)
		}
		if a.Reallocate(uint64(8*page+1)) != nil {
			t.Error("a memory grew beyond its reservation")
		}
	})
}

// TestVerifySees checks the check: one byte in the image, in a hole, after it
// and beyond the guest's memory.
func TestVerifySees(t *testing.T) {
	onEveryRung(t, func(t *testing.T, s *Store) {
		page := os.Getpagesize()
		i := newImage(t, s, pattern(4), 8*page)
		for _, at := range []int{page, 3*page + 5, 4 * page, 8*page - 1} {
			m := mapped(t, i)
			m.bytes[at] ^= 1
			if m.Verify() == nil {
				t.Errorf("a changed byte at %#x was not seen", at)
			}
		}
	})
}

func BenchmarkReset(b *testing.B) {
	for _, method := range []Method{Scan, Compare} {
		s, err := Open(method)
		if err != nil {
			b.Skipf("SKIPPED: %v", err)
		}
		for name, pages := range map[string]int{"64KiB": 16, "4MiB": 1024} {
			b.Run(string(method)+"/"+name, func(b *testing.B) {
				page := os.Getpagesize()
				m := mapped(b, newImage(b, s, pattern(pages), 64<<20))
				b.ReportAllocs()
				for b.Loop() {
					memory := m.Reallocate(uint64(pages * page))
					memory[page], memory[4*page], memory[5*page] = 1, 2, 3
					if err := m.Reset(0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		s.Close()
	}
}
