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

// Files are the files of a call. They are data: the call reads a tree, writes to a copy of its
// own, and leaves the root of another tree. What it sees is a function of the root and of what
// it has done, so that descriptors, inode numbers, times and orders are the same in each replay.
type Files struct {
	Root   Digest
	Mounts []Mount // sorted by At; none is inside another
	Get    workspace.Get
}

// Mount is a folder of the tree that the guest finds as an open descriptor, from 3 on.
type Mount struct {
	At       string // an absolute, clean path, such as /workspace; never "/"
	Writable bool
}

// Bounds of the files of one call. Beyond them a write is refused with an errno, and a read ends
// the call.
const (
	filesBytes = 256 << 20 // of contents that are in memory
	filesNames = 200_000   // in folders that are in memory
	filesOpen  = 1024      // descriptors
)

// The prices of files, in units of fuel. BenchmarkFiles measures them: without a guest, with contents
// in memory, in ns of processor time (AMD EPYC, Go 1.26), rounded up. What has bytes costs a unit for
// each that is read, written, zero-filled, copied at the first write, loaded, or hashed at the end.
// Recorded meters depend on all of it, so a price can never change.
const (
	priceFile   = 200 // a function on a file
	pricePath   = 100 // a path, besides its bytes
	priceName   = 60  // a name that is looked up in a folder,
	priceDouble = 16  // and each time that the folder's size doubles, for the memory caches that miss
	priceStep   = 10  // a folder on the way up to the root
	priceChange = 400 // a name that is added, removed or moved
	priceEntry  = 500 // an entry of a folder that is loaded or encoded
	priceList   = 300 // a name in a list that is sorted
)

// FuelOfContent is the price of a content that is loaded, which another process may have to find.
const FuelOfContent = 10_000

// node is a file, folder or link while a call runs.
type node struct {
	kind     workspace.Kind
	base     bool       // the content, or the list of names, is still that of the digest
	loaded   bool       // data or children are there
	digest   canon.Hash // of the content before the call, if there was one
	number   uint64     // of the inode; zero until the guest sees it
	links    int        // names that it has
	opens    int        // descriptors that it has
	size     uint64     // of the content; zero for a folder
	held     uint64     // how much of filesBytes it takes
	data     []byte     // read-only if base
	name     string     // of a folder
	parent   *node      // of a folder
	children map[string]*node
	modified uint64
	accessed uint64
	sum      canon.Hash // of what the call leaves, once that is known
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
	roots   []*node       // of the mounts that were used
	open    []*descriptor // by number, from firstFile; nil where one was closed
	numbers uint64        // of inodes
	stamps  uint64
	bytes   uint64
	names   int
}

const firstFile = 3

func (s *session) attach(files *Files) {
	f := &filesystem{Files: files, s: s, roots: make([]*node, len(files.Mounts))}
	f.root = &node{kind: workspace.Folder, base: true, digest: canon.Hash(files.Root), links: 1, modified: startTime, accessed: startTime}
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

func (f *filesystem) writable(d *descriptor) bool { return f.Mounts[d.mount].Writable }

// stamp is the time of a modification: a second after the one before. So the order shows
// without the clock, which is an effect.
func (f *filesystem) stamp() uint64 {
	f.stamps++
	return startTime + f.stamps*1_000_000_000
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
		n.data, n.held = content, n.size
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
		nodes[i] = node{kind: e.Kind, base: true, digest: e.Digest, links: 1, size: e.Size, modified: startTime, accessed: startTime}
		if e.Kind == workspace.Folder {
			nodes[i].name, nodes[i].parent = e.Name, n
		}
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

// release frees the content that nobody can reach, or that can be loaded again.
func (f *filesystem) release(n *node) {
	if n.opens > 0 || n.links > 0 && (!n.base || n.kind != workspace.File) {
		return
	}
	f.bytes -= n.held
	n.data, n.held, n.loaded = nil, 0, false
}

// resize gives a file a content of its own with the given size. What is new in it is zero.
func (f *filesystem) resize(n *node, size uint64) errno {
	if size > workspace.MaxFileBytes {
		return eFbig
	}
	keep := min(size, n.size)
	if n.base && keep > 0 {
		f.load(n)
	}
	held, moves := max(size, n.held), n.base || size < n.held/2 // so that a short file never holds a long one's memory
	if moves {
		held = size
		f.s.charge(keep)
	}
	f.s.charge(size - keep)
	if f.bytes-n.held+held > filesBytes {
		return eNospc
	}
	switch {
	case moves:
		n.data = append(make([]byte, 0, size), n.data[:keep]...)
	case size > uint64(cap(n.data)):
		n.data = append(make([]byte, 0, size+size/4), n.data...)
	}
	n.data = n.data[:size]
	clear(n.data[keep:])
	f.bytes += held - n.held
	n.base, n.loaded, n.size, n.held, n.modified = false, true, size, held, f.stamp()
	return success
}

// touch makes a folder one that the call has changed.
func (f *filesystem) touch(dir *node) {
	f.s.charge(priceChange)
	dir.base, dir.modified = false, f.stamp()
}

// enter gives a node a name in a folder.
func (f *filesystem) enter(dir *node, name string, n *node) {
	f.touch(dir)
	f.names++
	n.links++
	dir.children[name] = n
	if n.kind == workspace.Folder {
		n.name, n.parent = name, dir
	}
}

// remove takes a name out of a folder.
func (f *filesystem) remove(dir *node, name string) {
	n := dir.children[name]
	f.touch(dir)
	f.names--
	n.links--
	delete(dir.children, name)
	f.release(n)
}

// left returns the root of the tree that the call leaves, and the contents that are new in it,
// each before the folder that lists it. It reads the folders that the call has not read, since
// the bounds of a tree are those of all of it.
func (f *filesystem) left() (root Digest, contents []workspace.Content) {
	if f.stamps == 0 {
		return f.Root, nil
	}
	type key struct {
		digest canon.Hash
		folder bool
	}
	seen := map[key]bool{}
	add := func(n *node, content []byte) canon.Hash {
		f.s.charge(uint64(len(content)))
		c := workspace.Content{Bytes: content, Folder: n.kind == workspace.Folder}
		k := key{c.Digest(), c.Folder}
		if k.digest != n.digest && !seen[k] {
			seen[k] = true
			contents = append(contents, c)
		}
		return k.digest
	}
	names, bytes := 0, uint64(0)
	var digest func(n *node) canon.Hash
	digest = func(n *node) canon.Hash {
		switch {
		case n.sum != canon.Hash{}:
			return n.sum
		case n.kind != workspace.Folder && n.base:
			n.sum = n.digest
			return n.sum
		case n.kind != workspace.Folder:
			n.sum = add(n, n.data)
			return n.sum
		}
		f.load(n)
		f.s.charge(priceStep * uint64(len(n.children)))
		entries, changed := make([]workspace.Entry, 0, len(n.children)), !n.base
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			c := n.children[name]
			names, bytes = names+1, bytes+c.size
			h := digest(c)
			changed = changed || h != c.digest
			entries = append(entries, workspace.Entry{Name: name, Kind: c.kind, Size: c.size, Digest: h})
		}
		if n.sum = n.digest; changed {
			f.s.charge(priceEntry * uint64(len(entries)))
			n.sum = add(n, workspace.Encode(entries))
		}
		return n.sum
	}
	root = Digest(digest(f.root))
	if err := workspace.CheckBounds("", names, bytes); err != nil {
		f.s.end(fmt.Errorf("%w: %w", abi.ErrLimit, err))
	}
	return root, contents
}

// leave fills in what the call leaves. It counts as a part of the call, with the same ends.
func (s *session) leave(r *Result) (err error) {
	defer func() {
		v := recover()
		stopped, ok := v.(*guestStopped)
		switch {
		case s.fault != nil:
			panic(s.fault)
		case ok:
			*r, err = Result{}, stopped.err
		case v != nil:
			panic(v)
		}
	}()
	r.Left, r.Contents = s.files.left()
	return nil
}

// Values of WASI's types that describe files.
const (
	typeFolder = 3
	typeFile   = 4
	typeLink   = 7

	rightSeek = 1 << 2
	rightTell = 1 << 5
	allRights = 1<<30 - 1

	flagAppend = 1 // fdflags

	setAccessed    = 1 // fstflags
	setAccessedNow = 2
	setModified    = 4
	setModifiedNow = 8
)

var fileTypes = map[workspace.Kind]byte{workspace.Folder: typeFolder, workspace.File: typeFile, workspace.Link: typeLink}

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

// preopened returns the path of a mount. Without one, any other errno than EBADF ends Go's and
// wasi-libc's start-up.
func (s *session) preopened(a args) (string, errno) {
	if d := s.files.descriptor(a.u32(0)); d != nil && d.preopen {
		return s.files.Mounts[d.mount].At, success
	}
	return "", eBadf
}

func (s *session) fdPrestatGet(a args) errno {
	at, e := s.preopened(a)
	if e != success {
		return e
	}
	return s.store(a.u32(1), binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(len(at))))
}

func (s *session) fdPrestatDirName(a args) errno {
	at, e := s.preopened(a)
	switch {
	case e != success:
		return e
	case a.u32(2) < uint32(len(at)):
		return eNametoolong
	}
	return s.store(a.u32(1), []byte(at))
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

func (f *filesystem) allocate(d *descriptor, _ args) errno {
	if d.node.kind != workspace.File {
		return eBadf
	}
	return eNotsup
}

func (f *filesystem) close(d *descriptor, a args) errno {
	f.open[a.u32(0)-firstFile] = nil
	f.bytes -= listed(d)
	d.node.opens--
	f.release(d.node)
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

func (f *filesystem) sync(*descriptor, args) errno { return success }

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
	b := binary.LittleEndian.AppendUint64(nil, uint64(d.mount+1))
	b = binary.LittleEndian.AppendUint64(b, f.inode(n))
	for _, v := range []uint64{uint64(fileTypes[n.kind]), uint64(n.links), n.size, n.accessed, n.modified, n.modified} {
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

func (f *filesystem) setSize(d *descriptor, a args) errno {
	if d.node.kind != workspace.File || d.rights&rightWrite == 0 || a[1] > math.MaxInt64 {
		return eInval
	}
	return f.resize(d.node, a[1])
}

func (f *filesystem) setTimes(d *descriptor, a args) errno {
	return f.times(d, d.node, a[1], a[2], a.u32(3))
}

// times sets times, which last until the call ends. No tree has them, so nothing has changed.
func (f *filesystem) times(d *descriptor, n *node, accessed, modified uint64, flags uint32) errno {
	switch {
	case flags&3 == setAccessed|setAccessedNow, flags&12 == setModified|setModifiedNow, flags > 15:
		return eInval
	case !f.writable(d):
		return eRofs
	}
	switch {
	case flags&setAccessed != 0:
		n.accessed = accessed
	case flags&setAccessedNow != 0:
		n.accessed = f.stamp()
	}
	switch {
	case flags&setModified != 0:
		n.modified = modified
	case flags&setModifiedNow != 0:
		n.modified = f.stamp()
	}
	return success
}

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

// writeAt copies from guest memory to a file: everything, or nothing.
func (f *filesystem) writeAt(d *descriptor, a args, offset uint64, result uint32) (total uint32, e errno) {
	if d.node.kind != workspace.File || d.rights&rightWrite == 0 {
		return 0, eBadf
	}
	areas, e := f.s.areas(args{a[0], a[1], a[2], uint64(result)})
	switch {
	case e != success:
		return 0, e
	case offset > math.MaxInt64:
		return 0, eInval
	}
	for _, from := range areas {
		total += from.length
	}
	if total > 0 {
		if e := f.resize(d.node, max(d.node.size, offset+uint64(total))); e != success {
			return 0, e
		}
		for _, from := range areas {
			f.s.charge(uint64(from.length))
			offset += uint64(copy(d.node.data[offset:], f.s.view(from)))
		}
	}
	return total, f.s.store(result, binary.LittleEndian.AppendUint32(nil, total))
}

func (f *filesystem) read(d *descriptor, a args) errno {
	n, e := f.readAt(d, a, d.offset, a.u32(3))
	d.offset += uint64(n)
	return e
}

func (f *filesystem) write(d *descriptor, a args) errno {
	offset := d.offset
	if d.flags&flagAppend != 0 {
		offset = d.node.size
	}
	n, e := f.writeAt(d, a, offset, a.u32(3))
	if n > 0 {
		d.offset = offset + uint64(n)
	}
	return e
}

func (f *filesystem) pread(d *descriptor, a args) errno {
	_, e := f.readAt(d, a, a[3], a.u32(4))
	return e
}

// pwrite ignores the offset of a descriptor that appends, as Linux does.
func (f *filesystem) pwrite(d *descriptor, a args) errno {
	offset := a[3]
	if d.flags&flagAppend != 0 && offset <= math.MaxInt64 {
		offset = d.node.size
	}
	_, e := f.writeAt(d, a, offset, a.u32(4))
	return e
}

func (f *filesystem) seek(d *descriptor, a args) errno {
	if d.node.kind == workspace.Folder {
		return eBadf
	}
	var from uint64
	switch a.u32(2) {
	case 0:
	case 1:
		from = d.offset
	case 2:
		from = d.node.size
	default:
		return eInval
	}
	to := from + a[1] // each is less than 1<<63, or a[1] is negative
	if to > math.MaxInt64 {
		return eInval
	}
	if e := f.s.store(a.u32(3), binary.LittleEndian.AppendUint64(nil, to)); e != success {
		return e
	}
	d.offset = to
	return success
}

func (f *filesystem) tell(d *descriptor, a args) errno {
	if d.node.kind == workspace.Folder {
		return eBadf
	}
	return f.s.store(a.u32(1), binary.LittleEndian.AppendUint64(nil, d.offset))
}

// listed returns how much of filesBytes the list of a descriptor takes.
func listed(d *descriptor) uint64 { return 16 * uint64(len(d.list)) }

// readdir lists a folder in the order of the names. The list is made when it is read from its
// start, so that a cookie means the same entry whatever is added or removed meanwhile.
func (f *filesystem) readdir(d *descriptor, a args) errno {
	address, length, cookie, result := a.u32(1), a.u32(2), a[3], a.u32(4)
	dir := d.node
	switch {
	case dir.kind != workspace.Folder:
		return eNotdir
	case dir.links == 0:
		return eNoent // it was removed
	case !f.s.instance.has(address, uint64(length)), !f.s.instance.has(result, 4):
		return eFault
	}
	if cookie == 0 || d.list == nil {
		f.load(dir)
		f.s.charge(priceList * uint64(len(dir.children)+2))
		f.bytes -= listed(d)
		d.list = nil
		f.hold(16*uint64(len(dir.children)+2), 0)
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
		case n == nil:
			continue // removed meanwhile
		}
		out = binary.LittleEndian.AppendUint64(out, i+1)
		out = binary.LittleEndian.AppendUint64(out, f.inode(n))
		out = binary.LittleEndian.AppendUint32(out, uint32(len(name)))
		out = append(append(out, fileTypes[n.kind], 0, 0, 0), name...)
	}
	out = out[:min(len(out), int(length))] // the last entry may be cut
	if e := f.s.store(address, out); e != success {
		return e
	}
	return f.s.store(result, binary.LittleEndian.AppendUint32(nil, uint32(len(out))))
}
