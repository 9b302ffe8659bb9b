package sandbox

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/workspace"
)

// The functions on paths answer as Linux does, and check in its order, with three differences:
// no path leads out of the folder of its descriptor (EPERM), names are UTF-8 (EILSEQ), and there
// are no permissions.

// How a path is walked.
const (
	followLast = 1 // lookupflags: a link at the end is followed
	forParent  = 2 // the last name will be added or removed: it is not followed
	forCreate  = 4 // the last name may be missing, and is then a file's
)

const (
	openCreate    = 1 // oflags
	openFolder    = 2
	openExclusive = 4
	openTruncate  = 8

	maxLinks = 40 // on one path
)

// place is where a path leads to.
type place struct {
	dir   *node  // the folder of the last name
	name  string // the last name
	node  *node  // nil if there is nothing
	slash bool   // the path ends with a slash
}

// dots reports whether the last name is that of the folder itself or of the one above.
func (p place) dots() bool { return p.name == "." || p.name == ".." }

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

// text reads a path from guest memory.
func (f *filesystem) text(address, length uint32) (string, errno) {
	switch {
	case length > workspace.MaxPath:
		return "", eNametoolong
	case !f.s.instance.has(address, uint64(length)):
		return "", eFault
	}
	f.s.charge(pricePath + uint64(length))
	path := string(f.s.view(area{address, length}))
	switch {
	case !utf8.ValidString(path):
		return "", eIlseq
	case strings.ContainsRune(path, 0):
		return "", eInval
	case path == "":
		return "", eNoent
	}
	return path, success
}

// walk follows a path in guest memory.
func (f *filesystem) walk(d *descriptor, address, length, how uint32) (p place, e errno) {
	rest, e := f.text(address, length)
	if e != success {
		return p, e
	}
	at, links := d.node, 0
	var outer []string // what follows the links that are being followed
	for {
		if strings.HasPrefix(rest, "/") {
			return p, ePerm
		}
		f.s.charge(at.look())
		name, after, slash := strings.Cut(rest, "/")
		if after = strings.TrimLeft(after, "/"); after == "" && len(outer) > 0 {
			after, outer = outer[len(outer)-1], outer[:len(outer)-1]
		}
		last := after == ""
		p.slash = p.slash || last && slash
		switch {
		case len(name) > workspace.MaxName:
			return p, eNametoolong
		case name == ".." && at == d.node:
			return p, ePerm
		case name == "." || name == "..":
			if name == ".." && !(last && how&forParent != 0) {
				at = at.parent
			}
			if last {
				return place{at, name, at, p.slash}, success
			}
			rest = after
			continue
		case last && p.slash && how&forCreate != 0:
			return p, eIsdir
		}
		f.load(at)
		n := at.children[name]
		switch {
		case n != nil && n.kind == workspace.Link && (!last || how&forParent == 0 && (how&followLast != 0 || p.slash)):
			if links++; links > maxLinks {
				return p, eLoop
			}
			f.load(n)
			f.s.charge(n.size)
			if !last {
				outer = append(outer, after)
			}
			rest = string(n.data)
		case last:
			return place{at, name, n, p.slash}, success
		case n == nil:
			return p, eNoent
		case n.kind != workspace.Folder:
			return p, eNotdir
		default:
			at, rest = n, after
		}
	}
}

// find walks a path to something that exists.
func (f *filesystem) find(d *descriptor, address, length, how uint32) (*node, errno) {
	p, e := f.walk(d, address, length, how&followLast)
	switch {
	case e != success:
		return nil, e
	case p.node == nil:
		return nil, eNoent
	case p.slash && p.node.kind != workspace.Folder:
		return nil, eNotdir
	}
	return p.node, success
}

// vacant walks a path to a name that does not exist and that a folder can have, or anything else.
func (f *filesystem) vacant(d *descriptor, address, length uint32, folder bool) (place, errno) {
	p, e := f.walk(d, address, length, forParent)
	switch {
	case e != success:
	case p.node != nil:
		e = eExist
	case p.slash && !folder:
		e = eNoent
	case !f.writable(d):
		e = eRofs
	}
	return p, e
}

// extent is how many names a path has, and bytes.
type extent struct{ names, bytes int }

// above returns the extent of the path of a folder, with a slash behind it.
func (f *filesystem) above(dir *node) (x extent) {
	for ; dir != f.root; dir = dir.parent {
		x.names, x.bytes = x.names+1, x.bytes+len(dir.name)+1
	}
	f.s.charge(priceStep * uint64(x.names+1))
	return x
}

// below returns the greatest extents of the paths below a node, with a slash before them.
func (f *filesystem) below(n *node) (x extent) {
	if n.kind != workspace.Folder {
		return x
	}
	f.load(n)
	f.s.charge(priceList * uint64(len(n.children)))
	for _, name := range slices.Sorted(maps.Keys(n.children)) { // each has a price, too
		y := f.below(n.children[name])
		x.names, x.bytes = max(x.names, 1+y.names), max(x.bytes, 1+len(name)+y.bytes)
	}
	return x
}

// fits returns an errno if a folder cannot have another name, with paths below it.
func (f *filesystem) fits(dir *node, name string, below extent) errno {
	above := f.above(dir)
	switch {
	case dir.links == 0:
		return eNoent // it was removed
	case above.names+1+below.names > workspace.MaxDepth, above.bytes+len(name)+below.bytes > workspace.MaxPath:
		return eNametoolong
	case f.names == filesNames:
		return eNospc
	}
	return success
}

// create adds a new node.
func (f *filesystem) create(p place, n *node) errno {
	if e := f.fits(p.dir, p.name, extent{}); e != success {
		return e
	}
	f.enter(p.dir, p.name, n)
	n.loaded, n.modified, n.accessed = true, p.dir.modified, p.dir.modified
	return success
}

func (f *filesystem) pathOpen(d *descriptor, a args) errno {
	how, oflags, rights, result := a.u32(1)&followLast, a.u32(4), a[5], a.u32(8)
	create, exclusive, truncate := oflags&openCreate != 0, oflags&openExclusive != 0, oflags&openTruncate != 0
	if create {
		how |= forCreate
		if exclusive {
			how &^= followLast
		}
	}
	slot := slices.Index(f.open, nil)
	switch {
	case !f.s.instance.has(result, 4):
		return eFault
	case create && oflags&openFolder != 0:
		return eInval
	case slot < 0 && len(f.open) == filesOpen:
		return eMfile
	}
	p, e := f.walk(d, a.u32(2), a.u32(3), how)
	if e != success {
		return e
	}
	n, write := p.node, truncate || rights&rightWrite != 0
	switch {
	case n == nil && !create:
		return eNoent
	case n == nil && !f.writable(d):
		return eRofs
	case n == nil:
		n = &node{kind: workspace.File, data: []byte{}}
		e = f.create(p, n)
	case create && exclusive:
		return eExist
	case create && n.kind == workspace.Folder:
		return eIsdir
	case n.kind != workspace.Folder && (p.slash || oflags&openFolder != 0):
		return eNotdir
	case n.kind == workspace.Link:
		return eLoop
	case n.kind == workspace.Folder && write:
		return eIsdir
	case write && !f.writable(d):
		return eRofs
	case truncate:
		e = f.resize(n, 0)
	}
	if e != success {
		return e
	}
	if slot < 0 {
		slot = len(f.open)
		f.open = append(f.open, nil)
	}
	n.opens++
	f.open[slot] = &descriptor{node: n, mount: d.mount, rights: rights, flags: uint16(a.u32(7))}
	return f.s.store(result, binary.LittleEndian.AppendUint32(nil, uint32(slot+firstFile)))
}

func (f *filesystem) pathFilestat(d *descriptor, a args) errno {
	n, e := f.find(d, a.u32(2), a.u32(3), a.u32(1))
	if e != success {
		return e
	}
	return f.stat(d, n, a.u32(4))
}

func (f *filesystem) pathSetTimes(d *descriptor, a args) errno {
	n, e := f.find(d, a.u32(2), a.u32(3), a.u32(1))
	if e != success {
		return e
	}
	return f.times(d, n, a[4], a[5], a.u32(6))
}

func (f *filesystem) readlink(d *descriptor, a args) errno {
	address, length, result := a.u32(3), a.u32(4), a.u32(5)
	n, e := f.find(d, a.u32(1), a.u32(2), 0)
	switch {
	case e != success:
		return e
	case n.kind != workspace.Link:
		return eInval
	case !f.s.instance.has(result, 4):
		return eFault
	}
	f.load(n)
	target := n.data[:min(n.size, uint64(length))]
	if e := f.s.store(address, target); e != success {
		return e
	}
	return f.s.store(result, binary.LittleEndian.AppendUint32(nil, uint32(len(target))))
}

func (f *filesystem) createFolder(d *descriptor, a args) errno {
	p, e := f.vacant(d, a.u32(1), a.u32(2), true)
	if e != success {
		return e
	}
	return f.create(p, &node{kind: workspace.Folder, children: map[string]*node{}})
}

// symlink makes a link. No link could lead to an absolute path, so there is none to one.
func (f *filesystem) symlink(d *descriptor, a args) errno {
	target, e := f.text(a.u32(0), a.u32(1))
	switch {
	case e != success:
		return e
	case strings.HasPrefix(target, "/"):
		return ePerm
	}
	p, e := f.vacant(d, a.u32(3), a.u32(4), false)
	size := uint64(len(target))
	switch {
	case e != success:
		return e
	case f.bytes+size > filesBytes:
		return eNospc
	}
	if e := f.create(p, &node{kind: workspace.Link, data: []byte(target), size: size, held: size}); e != success {
		return e
	}
	f.bytes += size
	return success
}

// link makes a second name of a file. In the tree that the call leaves they are two files.
func (f *filesystem) link(d *descriptor, a args) errno {
	if a.u32(1)&followLast != 0 {
		return eInval
	}
	n, e := f.find(d, a.u32(2), a.u32(3), 0)
	if e != success {
		return e
	}
	other, e := f.folder(a.u32(4))
	if e != success {
		return e
	}
	p, e := f.vacant(other, a.u32(5), a.u32(6), false)
	switch {
	case e != success:
		return e
	case other.mount != d.mount:
		return eXdev
	case n.kind == workspace.Folder:
		return ePerm
	case n.links == 0:
		return eNoent
	}
	if e := f.fits(p.dir, p.name, extent{}); e != success {
		return e
	}
	f.enter(p.dir, p.name, n)
	return success
}

func (f *filesystem) removeFolder(d *descriptor, a args) errno {
	p, e := f.walk(d, a.u32(1), a.u32(2), forParent)
	switch {
	case e != success:
		return e
	case p.name == ".":
		return eInval
	case p.name == "..":
		return eNotempty
	case !f.writable(d):
		return eRofs
	case p.node == nil:
		return eNoent
	case p.node.kind != workspace.Folder:
		return eNotdir
	}
	if f.load(p.node); len(p.node.children) > 0 {
		return eNotempty
	}
	f.remove(p.dir, p.name)
	return success
}

func (f *filesystem) unlink(d *descriptor, a args) errno {
	p, e := f.walk(d, a.u32(1), a.u32(2), forParent)
	switch {
	case e != success:
		return e
	case p.dots():
		return eIsdir
	case !f.writable(d):
		return eRofs
	case p.node == nil:
		return eNoent
	case p.node.kind == workspace.Folder:
		return eIsdir
	case p.slash:
		return eNotdir
	}
	f.remove(p.dir, p.name)
	return success
}

func (f *filesystem) rename(d *descriptor, a args) errno {
	from, e := f.walk(d, a.u32(1), a.u32(2), forParent)
	if e != success {
		return e
	}
	other, e := f.folder(a.u32(3))
	if e != success {
		return e
	}
	to, e := f.walk(other, a.u32(4), a.u32(5), forParent)
	n, old := from.node, to.node
	switch {
	case e != success:
		return e
	case other.mount != d.mount:
		return eXdev
	case from.dots() || to.dots(): // a mount has no other name
		return eBusy
	case !f.writable(d):
		return eRofs
	case n == nil || to.dir.links == 0:
		return eNoent
	}
	folder := n.kind == workspace.Folder
	switch {
	case !folder && (from.slash || to.slash):
		return eNotdir
	case folder && f.isAbove(n, to.dir):
		return eInval
	case old != nil && from.dir != to.dir && f.isAbove(old, from.dir):
		return eNotempty
	case old == n:
		return success
	case old != nil && folder && old.kind != workspace.Folder:
		return eNotdir
	case old != nil && !folder && old.kind == workspace.Folder:
		return eIsdir
	}
	if old != nil && folder {
		if f.load(old); len(old.children) > 0 {
			return eNotempty
		}
	}
	var below extent
	if before, after := f.above(from.dir), f.above(to.dir); folder && // what gets no longer cannot get too long
		(after.names > before.names || after.bytes+len(to.name) > before.bytes+len(from.name)) {
		below = f.below(n)
	}
	f.names-- // of the name that goes
	e = f.fits(to.dir, to.name, below)
	f.names++
	if e != success {
		return e
	}
	if old != nil {
		f.remove(to.dir, to.name)
	}
	f.enter(to.dir, to.name, n) // first, so that it always has a name
	f.remove(from.dir, from.name)
	return success
}

// isAbove reports whether a folder is another one, or above it.
func (f *filesystem) isAbove(n, dir *node) bool {
	steps := uint64(1)
	for ; dir != n && dir != f.root; dir = dir.parent {
		steps++
	}
	f.s.charge(priceStep * steps)
	return dir == n
}
