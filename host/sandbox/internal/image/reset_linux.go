package image

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxCopied is how much of a memory is copied back. Pages written beyond it
	// are dropped: pages that stay written cost memory, and copying them at every
	// reset costs more than faulting a few again.
	maxCopied = 1 << 20

	// maxCompared is the largest memory that Compare compares.
	maxCompared = 1 << 20
)

// Reset makes the memory equal to its image, also where the guest has grown into
// it, and keeps that many bytes. After an error the memory is unusable.
func (m *Memory) Reset(keep uint64) error {
	used := m.used
	m.used = int(keep)
	if used == 0 {
		return nil
	}
	reset := m.resetCompare
	if m.image.store.method == Scan {
		reset = m.resetScan
	}
	if err := reset(used); err != nil {
		return fmt.Errorf("image: reset by %s: %w", m.image.store.method, err)
	}
	return nil
}

// drop lets the kernel forget the private pages: the next touch of one finds
// the image or zeros.
func (m *Memory) drop(used int) error { return unix.Madvise(m.bytes[:used], unix.MADV_DONTNEED) }

func (m *Memory) resetCompare(used int) error {
	if used > maxCompared {
		return m.drop(used)
	}
	page := os.Getpagesize()
	for at := 0; at < used; at += page {
		if end := min(at+page, used); !m.equal(at, end) {
			m.restore(at, end)
		}
	}
	return nil
}

// The ioctl PAGEMAP_SCAN (linux/fs.h, Documentation/admin-guide/mm/pagemap.rst):
// _IOWR('f', 16, struct pm_scan_arg) and the categories of a page.
const (
	pagemapScan = 0xc0606610

	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
	pageIsZero    = 1 << 5 // the kernel's one page of zeros
)

// scanArg is struct pm_scan_arg.
type scanArg struct {
	size, flags, start, end, walkEnd  uint64
	vec, vecLen, maxPages             uint64
	inverted, mask, anyOf, returnMask uint64
}

// region is struct page_region.
type region struct{ start, end, categories uint64 }

// regions is the kernel's result buffer. A call of a Go tool leaves some
// twenty regions.
type regions struct {
	arg  scanArg
	list [64]region
}

// resetScan asks for the pages that are private, neither the file's nor the
// page of zeros, and present or swapped out. The kernel stops when the list is
// full, so the walk continues from where it ended.
func (m *Memory) resetScan(used int) error {
	s := &m.found
	base := uint64(uintptr(unsafe.Pointer(&m.bytes[0])))
	copied := uint64(0)
	for at, end := base, base+uint64(used); at < end; at = s.arg.walkEnd {
		s.arg = scanArg{
			size: uint64(unsafe.Sizeof(s.arg)), start: at, end: end,
			vec: uint64(uintptr(unsafe.Pointer(&s.list[0]))), vecLen: uint64(len(s.list)),
			inverted: pageIsFile | pageIsZero, mask: pageIsFile | pageIsZero,
			anyOf: pageIsPresent | pageIsSwapped,
		}
		n, _, errno := unix.RawSyscall(unix.SYS_IOCTL, m.image.store.pagemap.Fd(), pagemapScan, uintptr(unsafe.Pointer(&s.arg)))
		switch {
		case errno != 0:
			return errno
		case s.arg.walkEnd <= at || n > uintptr(len(s.list)):
			return fmt.Errorf("the kernel found %d regions up to %#x of %#x-%#x", n, s.arg.walkEnd, at, end)
		}
		for _, r := range s.list[:n] {
			if copied += r.end - r.start; copied > maxCopied {
				return m.drop(used)
			}
			m.restore(int(r.start-base), int(r.end-base))
		}
	}
	return nil
}
