package sandbox

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

// Files are the files of a call. They are data: the call reads a tree, and cannot change it. What it
// sees is a function of the root and of what it has done, so that descriptors, inode numbers and
// orders are the same in each replay.
type Files struct {
	Root   Digest
	Mounts []Mount // sorted by At; none is inside another
	Get    workspace.Get
}

// Mount is a folder of the tree that the guest finds as an open descriptor, from 3 on.
type Mount struct {
	At string // an absolute, clean path, such as /workspace; never "/"
}

// Bounds of the files of one call. Beyond them a read ends the call, and nothing more is opened.
const (
	filesBytes = 256 << 20 // of contents that are in memory
	filesNames = 200_000   // in folders that are in memory
	filesOpen  = 1024      // descriptors
)

// The prices of files, in units of fuel. BenchmarkFiles measures them: without a guest, with contents
// in memory, in ns of processor time (AMD EPYC, Go 1.26), rounded up. What has bytes costs a unit for
// each that is read or loaded. Recorded meters depend on all of it, so a price can never change.
const (
	priceFile   = 200 // a function on a file
	pricePath   = 100 // a path, besides its bytes
	priceName   = 60  // a name that is looked up in a folder,
	priceDouble = 16  // and each time that the folder's size doubles, for the memory caches that miss
	priceEntry  = 500 // an entry of a folder that is loaded
	priceList   = 300 // a name in a list that is sorted

	listBytes = 16 // of filesBytes, for each name in a list
)

// FuelOfContent is the price of a content that is loaded, which another process may have to find.
const FuelOfContent = 10_000

// node is a file, folder or link.
type node struct {
	kind     workspace.Kind
	loaded   bool // data or children are there
	digest   canon.Hash
	number   uint64 // of the inode; zero until the guest sees it
	opens    int    // descriptors that it has
	size     uint64 // of the content; zero for a folder
	data     []byte
	parent   *node // of a folder
	children map[string]*node
}

// descriptor is an open file or folder.
type descriptor struct {
	node    *node // nil for a mount that was not used yet
	mount   int
	preopen bool
	rights  uint64
	flags   uint16
	offset  uint64
	list    []string // the names that fd_readdir reads
}

// filesystem is the state of the files of a call.
type filesystem struct {
	*Files
	s       *session
	root    *node
	roots   []*node       // of the mounts, once they were used
	open    []*descriptor // by number, from firstFile; nil where one was closed
	numbers uint64        // of inodes
	bytes   uint64
	names   int
}

const firstFile = 3

func (s *session) attach(files *Files) {
	f := &filesystem{Files: files, s: s, roots: make([]*node, len(files.Mounts))}
	f.root = &node{kind: workspace.Folder, digest: canon.Hash(files.Root)}
	for i := range files.Mounts {
		f.open = append(f.open, &descriptor{mount: i, preopen: true, rights: allRights})
	}
	s.files = f
}

// descriptor returns an open descriptor of a file, or nil.
func (f *filesystem) descriptor(fd uint32) *descriptor {
	if f == nil || fd < firstFile || fd-firstFile >= uint32(len(f.open)) {
		return nil
	}
	return f.open[fd-firstFile]
}

// used returns a descriptor after it has found the folder of a mount.
func (f *filesystem) used(fd uint32) *descriptor {
	d := f.descriptor(fd)
	if d == nil || d.node != nil {
		return d
	}
	n, at := f.root, f.Mounts[d.mount].At
	for name := range strings.SplitSeq(at[1:], "/") {
		f.load(n)
		if n = n.children[name]; n == nil || n.kind != workspace.Folder {
			f.s.end(hostFailed(fmt.Errorf("the tree of the call has no folder %s", at)))
		}
	}
	n.opens++
	d.node, f.roots[d.mount] = n, n
	return d
}

// look is the price of looking up a name in a folder that is loaded.
func (n *node) look() uint64 { return priceName + priceDouble*uint64(bits.Len(uint(len(n.children)))) }

// load reads the content of a node. What is wrong with it is never the guest's doing.
func (f *filesystem) load(n *node) {
	if n.loaded {
		return
	}
	f.s.charge(FuelOfContent + n.size)
	f.hold(n.size, 0)
	content := cross(f.s, func() []byte {
		content, err := f.Get.Read(n.digest)
		if err == nil && n.kind != workspace.Folder && uint64(len(content)) != n.size {
			err = fmt.Errorf("the content %s has %d bytes, not %d", n.digest, len(content), n.size)
		}
		if err != nil {
			panic(hostFailed(fmt.Errorf("a file of the call cannot be read: %w", err)))
		}
		return content
	})
	n.loaded = true
	if n.kind != workspace.Folder {
		n.data = content
		return
	}
	f.s.charge(uint64(len(content)))
	entries, err := workspace.Decode(content)
	if err != nil {
		f.s.end(hostFailed(err))
	}
	f.s.charge(priceEntry * uint64(len(entries)))
	f.hold(0, len(entries))
	nodes := make([]node, len(entries))
	n.children = make(map[string]*node, len(entries))
	for i, e := range entries {
		nodes[i] = node{kind: e.Kind, digest: e.Digest, size: e.Size, parent: n}
		n.children[e.Name] = &nodes[i]
	}
}

// hold counts what is kept in memory for a reader.
func (f *filesystem) hold(bytes uint64, names int) {
	f.bytes += bytes
	f.names += names
	if f.bytes > filesBytes || f.names > filesNames {
		f.s.end(fmt.Errorf("%w: more than %d bytes or %d names of files in memory", abi.ErrLimit, uint64(filesBytes), filesNames))
	}
}

// Values of WASI's types that describe files.
const (
	rightSeek = 1 << 2
	rightTell = 1 << 5
	allRights = 1<<30 - 1
)

var fileTypes = [...]byte{workspace.Folder: 3, workspace.File: 4, workspace.Link: 7}

// onFile answers with file if fd is a file or folder of the call, and with stream otherwise.
func onFile(stream wasiFunc, file func(*filesystem, *descriptor, args) errno) wasiFunc {
	return func(s *session, a args) errno {
		if s.files.descriptor(a.u32(0)) == nil {
			return stream(s, a)
		}
		s.charge(priceFile)
		return file(s.files, s.files.used(a.u32(0)), a)
	}
}

// onPath answers a function whose argument i is the descriptor that a path begins at.
func onPath(i int, path func(*filesystem, *descriptor, args) errno) wasiFunc {
	return func(s *session, a args) errno {
		if s.files == nil {
			return eNoent
		}
		if a.u32(i) >= firstFile {
			s.charge(priceFile)
		}
		d, e := s.files.folder(a.u32(i))
		if e != success {
			return e
		}
		return path(s.files, d, a)
	}
}

// folder returns the descriptor that a path begins at.
func (f *filesystem) folder(fd uint32) (*descriptor, errno) {
	d := f.used(fd)
	switch {
	case fd < firstFile:
		return nil, eNotdir
	case d == nil:
		return nil, eBadf
	case d.node.kind != workspace.Folder:
		return nil, eNotdir
	}
	return d, success
}

// fdPrestatGet announces a mount. Without one, any other answer than EBADF ends Go's and
// wasi-libc's start-up.
func (s *session) fdPrestatGet(a args) errno {
	d := s.files.descriptor(a.u32(0))
	if d == nil || !d.preopen {
		return eBadf
	}
	return s.store(a.u32(1), binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(s.files.Mounts[d.mount].At))))
}

func (s *session) fdPrestatDirName(a args) errno {
	d := s.files.descriptor(a.u32(0))
	switch {
	case d == nil || !d.preopen:
		return eBadf
	case a.u32(2) < uint32(len(s.files.Mounts[d.mount].At)):
		return eNametoolong
	}
	return s.store(a.u32(1), []byte(s.files.Mounts[d.mount].At))
}

func (f *filesystem) advise(d *descriptor, a args) errno {
	switch {
	case d.node.kind != workspace.File:
		return eBadf
	case a.u32(3) > 5:
		return eInval
	}
	return success
}

func (f *filesystem) close(d *descriptor, a args) errno {
	f.open[a.u32(0)-firstFile] = nil
	f.bytes -= listBytes * uint64(len(d.list))
	n := d.node
	if n.opens--; n.opens == 0 && n.kind == workspace.File && n.loaded { // it can be loaded again
		f.bytes -= n.size
		n.data, n.loaded = nil, false
	}
	return success
}

func (f *filesystem) renumber(d *descriptor, a args) errno {
	from, to := a.u32(0), a.u32(1)
	switch {
	case to < firstFile:
		return eNotsup
	case f.used(to) == nil:
		return eBadf
	case from == to:
		return success
	}
	f.close(f.open[to-firstFile], args{uint64(to)})
	f.open[to-firstFile], f.open[from-firstFile] = d, nil
	return success
}

// answer returns an errno for each file and one for each folder: none can be written to.
func answer(file, folder errno) func(*filesystem, *descriptor, args) errno {
	return func(_ *filesystem, d *descriptor, _ args) errno {
		if d.node.kind == workspace.Folder {
			return folder
		}
		return file
	}
}

func (f *filesystem) fdstat(d *descriptor, a args) errno {
	b, rights := make([]byte, 24), d.rights
	if d.node.kind == workspace.Folder {
		rights &^= rightRead | rightWrite | rightSeek | rightTell
	}
	b[0] = fileTypes[d.node.kind]
	binary.LittleEndian.PutUint16(b[2:], d.flags)
	binary.LittleEndian.PutUint64(b[8:], rights&allRights)
	binary.LittleEndian.PutUint64(b[16:], allRights)
	return f.s.store(a.u32(1), b)
}

func (f *filesystem) setFlags(d *descriptor, a args) errno {
	d.flags = uint16(a.u32(1))
	return success
}

func (f *filesystem) filestat(d *descriptor, a args) errno { return f.stat(d, d.node, a.u32(1)) }

// stat writes what is known of a node. The device is its mount.
func (f *filesystem) stat(d *descriptor, n *node, address uint32) errno {
	var b []byte
	for _, v := range []uint64{uint64(d.mount + 1), f.inode(n), uint64(fileTypes[n.kind]), 1, n.size, startTime, startTime, startTime} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return f.s.store(address, b)
}

// inode returns the number of a node: the order in which the guest has first seen it.
func (f *filesystem) inode(n *node) uint64 {
	if n.number == 0 {
		f.numbers++
		n.number = f.numbers
	}
	return n.number
}

func (f *filesystem) setTimes(_ *descriptor, a args) errno {
	if contradicts(a.u32(3)) {
		return eInval
	}
	return eRofs
}

// contradicts reports whether fstflags set a time to a given one and to now: of access with bits 0
// and 1, of modification with bits 2 and 3.
func contradicts(flags uint32) bool { return flags&3 == 3 || flags&12 == 12 || flags > 15 }

// readAt copies from a file to guest memory.
func (f *filesystem) readAt(d *descriptor, a args, offset uint64, result uint32) (total uint32, e errno) {
	if d.node.kind != workspace.File || d.rights&rightRead == 0 {
		return 0, eBadf
	}
	areas, e := f.s.areas(args{a[0], a[1], a[2], uint64(result)})
	switch {
	case e != success:
		return 0, e
	case offset > math.MaxInt64:
		return 0, eInval
	}
	for _, to := range areas {
		n := uint32(min(uint64(to.length), d.node.size-min(offset, d.node.size)))
		if n == 0 {
			continue
		}
		f.load(d.node)
		f.s.charge(uint64(n))
		f.s.copyIn(to.address, d.node.data[offset:offset+uint64(n)])
		offset, total = offset+uint64(n), total+n
	}
	return total, f.s.store(result, binary.LittleEndian.AppendUint32(nil, total))
}

func (f *filesystem) read(d *descriptor, a args) errno {
	n, e := f.readAt(d, a, d.offset, a.u32(3))
	d.offset += uint64(n)
	return e
}

func (f *filesystem) pread(d *descriptor, a args) errno {
	_, e := f.readAt(d, a, a[3], a.u32(4))
	return e
}

func (f *filesystem) seek(d *descriptor, a args) errno {
	from, whence := []uint64{0, d.offset, d.node.size}, a.u32(2)
	switch {
	case d.node.kind == workspace.Folder:
		return eBadf
	case whence > 2 || from[whence]+a[1] > math.MaxInt64: // each is less than 1<<63, or a[1] is negative
		return eInval
	}
	to := from[whence] + a[1]
	if e := f.s.store(a.u32(3), binary.LittleEndian.AppendUint64(nil, to)); e != success {
		return e
	}
	d.offset = to
	return success
}

func (f *filesystem) tell(d *descriptor, a args) errno { return f.seek(d, args{a[0], 0, 1, a[1]}) }

// readdir lists a folder in the order of the names. The list is made when it is read from its
// start, so that a cookie means the same entry in each call.
func (f *filesystem) readdir(d *descriptor, a args) errno {
	address, length, cookie, result := a.u32(1), a.u32(2), a[3], a.u32(4)
	dir := d.node
	switch {
	case dir.kind != workspace.Folder:
		return eNotdir
	case !f.s.instance.has(address, uint64(length)), !f.s.instance.has(result, 4):
		return eFault
	}
	if cookie == 0 || d.list == nil {
		f.load(dir)
		names := uint64(len(dir.children) + 2)
		f.s.charge(priceList * names)
		f.bytes -= listBytes * uint64(len(d.list))
		f.hold(listBytes*names, 0)
		d.list = append([]string{".", ".."}, slices.Sorted(maps.Keys(dir.children))...)
	}
	var out []byte
	for i := cookie; i < uint64(len(d.list)) && len(out) < int(length); i++ {
		f.s.charge(dir.look())
		name := d.list[i]
		n := dir.children[name]
		switch {
		case name == "." || name == ".." && dir == f.roots[d.mount]:
			n = dir
		case name == "..":
			n = dir.parent
		}
		out = binary.LittleEndian.AppendUint64(out, i+1)
		out = binary.LittleEndian.AppendUint64(out, f.inode(n))
		out = binary.LittleEndian.AppendUint32(out, uint32(len(name)))
		out = append(append(out, fileTypes[n.kind], 0, 0, 0), name...)
	}
	out = out[:min(len(out), int(length))] // the last entry may be cut
	f.s.store(address, out)
	return f.s.store(result, binary.LittleEndian.AppendUint32(nil, uint32(len(out))))
}
