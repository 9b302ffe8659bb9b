package image

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tried is how many pages [Store.try] tries a method with; it writes to half of them: so
// many that a method cannot seem to work by chance. In an emulator the page map is the
// outer machine's, whose entries are random for our pages.
const tried = 128

// try reports whether the store's method works here: whether it resets a memory
// that has been read and written in every kind of place.
func (s *Store) try() (err error) {
	if s.method == Fresh {
		return nil
	}
	if s.method == Scan {
		if s.pagemap, err = os.Open("/proc/self/pagemap"); err != nil {
			return err
		}
	}
	page := os.Getpagesize()
	contents := make([]byte, tried/2*page)
	for at := page; at < len(contents); at += 4 * page {
		contents[at] = 1
	}
	i, err := s.New(uint64(len(contents)), uint64(tried*page), Pieces(contents))
	if err != nil {
		return err
	}
	defer i.Close()
	m, err := i.Map()
	if err != nil {
		return err
	}
	defer m.Free()
	b := m.Reallocate(uint64(tried * page))
	read := byte(7)
	for at := 0; at < len(b); at += 2 * page {
		read += b[at] // of a hole, or after the image
		b[at+page] = read
	}
	if err := m.Reset(0); err != nil {
		return err
	}
	return m.Verify()
}

// fill makes a file in memory, sets its seals so that nothing can change it, and maps it.
func (i *Image) fill(length int, pieces iter.Seq2[uint32, []byte]) (err error) {
	if i.fd, err = unix.MemfdCreate("starling-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		i.fd = -1
		return fmt.Errorf("making a file in memory: %w", err)
	}
	if length == 0 {
		return nil
	}
	if err := unix.Ftruncate(i.fd, int64(length)); err != nil {
		return fmt.Errorf("sizing the file in memory: %w", err)
	}
	// Pages without a piece stay holes, which take no memory.
	for at, b := range pieces {
		n, err := unix.Pwrite(i.fd, b, int64(at))
		if err == nil && n != len(b) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("writing the file in memory: %w", err)
		}
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(i.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("sealing the file in memory: %w", err)
	}
	i.contents, err = unix.Mmap(i.fd, 0, length, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	return err
}

// Close lets go of the image. Its memories can only be freed afterwards.
func (i *Image) Close() error {
	var err error
	if i.fd >= 0 && i.contents != nil {
		err = unix.Munmap(i.contents)
	}
	if i.fd >= 0 {
		err = errors.Join(err, unix.Close(i.fd))
	}
	i.fd, i.contents = -1, nil
	return err
}

// Map returns a new memory that equals the image. Its pages are reserved, not
// taken.
func (i *Image) Map() (*Memory, error) {
	// Anonymous memory for the whole reservation, and over its beginning the
	// file. If the rest of it were the file's as well, a guest that reads there
	// would fill the file with zeros, for good and for every instance.
	base, err := mmap(nil, i.limit, unix.MAP_ANONYMOUS, -1)
	if err != nil {
		return nil, fmt.Errorf("image: reserving %d bytes of memory: %w", i.limit, err)
	}
	m := &Memory{image: i, bytes: unsafe.Slice((*byte)(base), i.limit)}
	// A huge page would turn one written page into 512. Kernels that were built
	// without huge pages answer EINVAL.
	if err := unix.Madvise(m.bytes, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(fmt.Errorf("image: refusing huge pages: %w", err), m.unmap())
	}
	if len(i.contents) > 0 {
		if _, err := mmap(base, len(i.contents), unix.MAP_FIXED, i.fd); err != nil {
			return nil, errors.Join(fmt.Errorf("image: mapping the image: %w", err), m.unmap())
		}
	}
	return m, nil
}

func mmap(at unsafe.Pointer, length, flags, fd int) (unsafe.Pointer, error) {
	return unix.MmapPtr(fd, 0, at, uintptr(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_NORESERVE|flags)
}

// Free gives the memory back to the system. Nothing may use it afterwards; to
// free it twice does nothing.
func (m *Memory) Free() {
	_ = m.unmap() // which cannot fail for a range that Map returned
	m.bytes = nil
}

func (m *Memory) unmap() error {
	if len(m.bytes) == 0 {
		return nil
	}
	return unix.MunmapPtr(unsafe.Pointer(&m.bytes[0]), uintptr(len(m.bytes)))
}

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
