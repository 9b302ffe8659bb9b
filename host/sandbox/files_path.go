package sandbox

import (
	"encoding/binary"
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
	forParent  = 2 // the last name would be added or removed: it is not followed
	forCreate  = 4 // the last name would be added, as a file's
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
	name  string // the last name
	node  *node  // nil if there is nothing
	slash bool   // the path ends with a slash
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
				return place{name, at, p.slash}, success
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
			return place{name, n, p.slash}, success
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

// vacant walks a path to a name that cannot be added, because something is there or because nothing can.
func (f *filesystem) vacant(d *descriptor, address, length uint32, folder bool) errno {
	p, e := f.walk(d, address, length, forParent)
	switch {
	case e != success:
		return e
	case p.node != nil:
		return eExist
	case p.slash && !folder:
		return eNoent
	}
	return eRofs
}

func (f *filesystem) pathOpen(d *descriptor, a args) errno {
	how, oflags, rights, result := a.u32(1)&followLast, a.u32(4), a[5], a.u32(8)
	create, exclusive := oflags&openCreate != 0, oflags&openExclusive != 0
	write := oflags&openTruncate != 0 || rights&rightWrite != 0
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
	n := p.node
	switch {
	case n == nil && !create:
		return eNoent
	case n == nil:
		return eRofs
	case create && exclusive:
		return eExist
	case create && n.kind == workspace.Folder:
		return eIsdir
	case n.kind != workspace.Folder && (p.slash || oflags&openFolder != 0):
		return eNotdir
	case n.kind == workspace.Link:
		return eLoop
	case write && n.kind == workspace.Folder:
		return eIsdir
	case write:
		return eRofs
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
	if contradicts(a.u32(6)) {
		return eInval
	}
	if _, e := f.find(d, a.u32(2), a.u32(3), a.u32(1)); e != success {
		return e
	}
	return eRofs
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
	return f.vacant(d, a.u32(1), a.u32(2), true)
}

// symlink refuses a link to an absolute path for itself: it would lead nowhere.
func (f *filesystem) symlink(d *descriptor, a args) errno {
	target, e := f.text(a.u32(0), a.u32(1))
	switch {
	case e != success:
		return e
	case strings.HasPrefix(target, "/"):
		return ePerm
	}
	return f.vacant(d, a.u32(3), a.u32(4), false)
}

func (f *filesystem) link(d *descriptor, a args) errno {
	if a.u32(1)&followLast != 0 {
		return eInval
	}
	if _, e := f.find(d, a.u32(2), a.u32(3), 0); e != success {
		return e
	}
	other, e := f.folder(a.u32(4))
	if e != success {
		return e
	}
	return f.vacant(other, a.u32(5), a.u32(6), false)
}

// remove refuses to remove a name, with other errnos for . and for ..
func remove(dot, dots errno) func(*filesystem, *descriptor, args) errno {
	return func(f *filesystem, d *descriptor, a args) errno {
		p, e := f.walk(d, a.u32(1), a.u32(2), forParent)
		switch {
		case e != success:
			return e
		case p.name == ".":
			return dot
		case p.name == "..":
			return dots
		}
		return eRofs
	}
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
	switch {
	case e != success:
		return e
	case other.mount != d.mount:
		return eXdev
	case from.name == "." || from.name == ".." || to.name == "." || to.name == "..":
		return eBusy
	}
	return eRofs
}
